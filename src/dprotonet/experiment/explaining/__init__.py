"""From networks and images to heatmaps and the pictures that show them.

`explain` finds where each prototype of a decision is, `saliency` where any classifier looks, `streaming` the
same while it is watched. `explainers` chooses nodes and methods, `source_maps` keeps maps of prototypes.
"""
