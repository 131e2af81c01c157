"""The prototypes of a run under review: facts, names of parts, what if some were gone, cleaning, pruning.

`split_evidence` is the one pass over a split that all of them need.
"""
