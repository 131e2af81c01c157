"""Convolutions of one pixel by oneDNN, forwards and backwards, whatever PyTorch prefers.

With a single thread PyTorch leaves them to a general matrix product, which takes twice the time of oneDNN's
convolution. The gradient in the images is a convolution of one pixel too, with the weight transposed; no
gradient is taken in the weights, which are borrowed.
"""

from typing import Any

import torch
from torch import Tensor, nn


def is_pointwise(convolution: nn.Conv2d) -> bool:
    """Whether it mixes the channels of every pixel by itself, and lies where oneDNN works."""
    shape = convolution.kernel_size, convolution.stride, convolution.groups
    plain = shape == ((1, 1), (1, 1), 1) and convolution.padding in ((0, 0), 0, "valid")
    return plain and convolution.weight.device.type == "cpu" and _has_onednn()


class Pointwise:
    """Images (B, I, H, W) by weight (O, I, 1, 1) and bias (O,), all float32: (B, O, H, W)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias
        self.back = weight.transpose(0, 1).contiguous()

    def __call__(self, images: Tensor) -> Tensor:
        found: Tensor = _Applied.apply(images, self)
        return found


class _Applied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, convolution: Pointwise) -> Tensor:
        ctx.back = convolution.back
        return _convolution(images, convolution.weight, convolution.bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _convolution(gradient, ctx.back, None), None


def _convolution(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.mkldnn_convolution(images, weight, bias, (0, 0), (1, 1), (1, 1), 1)
    return found


def _has_onednn() -> bool:
    flags: Any = torch.backends.mkldnn
    return bool(flags.is_available() and flags.enabled) and hasattr(torch, "mkldnn_convolution")
