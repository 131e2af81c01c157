"""A trained network with its classes and prototypes, and what it says of an image.

`trained_model` loads a run folder and predicts, `evidence` is what every prototype says, `answer` keeps one
look at an image for many questions. `classifier` is any network to be explained: a run or a timm model.
"""
