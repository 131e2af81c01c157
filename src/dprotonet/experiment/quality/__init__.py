"""Are explanations good ones? Rows and prototypes (`quality`), truth by intervention, and random weights.

The last is `sanity`: heatmaps of a network that has forgotten what it learned should change.
"""
