"""How good a classifier is; later, how good an explanation is. Pure functions on tensors."""
