"""Any callable from images to activations, plus an image, to a heatmap (Section 3.4)."""
