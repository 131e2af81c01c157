"""A trained run as one self-contained HTML page: what the model is, how good it is, and why it decides."""
