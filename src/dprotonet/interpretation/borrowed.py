"""A model that is borrowed for explaining, and given back as it was.

An explainer treats the network as a black box. It may switch it to inference for the time being, but train
flags, `requires_grad` and `.grad` come back as they were, also after an exception.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def borrowed(model: nn.Module | None) -> Iterator[None]:
    """Inference mode of modules and parameters without gradient, undone on the way out."""
    if model is None:
        yield
        return
    training = {module: module.training for module in model.modules()}
    wanted = {parameter: (parameter.requires_grad, parameter.grad) for parameter in model.parameters()}
    try:
        for module in training:
            module.training = False
        for parameter in wanted:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, flag in training.items():
            module.training = flag
        for parameter, (flag, gradient) in wanted.items():
            parameter.requires_grad_(flag)
            parameter.grad = gradient


@contextmanager
def differentiable() -> Iterator[None]:
    """Gradients flow, whatever the caller switched off; never held open across a `yield` to the caller."""
    with torch.inference_mode(False), torch.enable_grad():
        yield
