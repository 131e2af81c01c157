"""Image to region vectors: backbone, shaping net, regions (Section 3.2)."""
