"""How good a classifier and how good an explanation is. Pure functions on tensors."""
