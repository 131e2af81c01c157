"""Mask vectors of several sizes, learned for many images at once.

Unstated: how mask vectors are enlarged and kept within [0, 1]; here bilinearly (pixel centres, no aligned
corners) and by clamping after every step, so that Eq. (20)'s m in [0, 1] holds throughout.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dprotonet.ops import upsample


class MaskStack:
    """Mask vectors d_i (N, s, s), one of each size per image."""

    def __init__(self, vectors: Mapping[int, Tensor]) -> None:
        self.vectors = {
            size: vector.detach().clone().requires_grad_(True) for size, vector in vectors.items()
        }

    @classmethod
    def constant(cls, sizes: Sequence[int], count: int, value: float, device: torch.device) -> "MaskStack":
        """All of them at one value, the paper's τ."""
        return cls({size: torch.full((count, size, size), value, device=device) for size in sizes})

    @property
    def parameters(self) -> list[Tensor]:
        return list(self.vectors.values())

    def enlarged(self, size: tuple[int, int]) -> Tensor:
        """g(d_i) of every size and image, (S, N, H, W)."""
        return torch.stack([upsample(vector, size) for vector in self.vectors.values()])

    def area(self) -> Tensor:
        """Mean of |d_i|, (S, N): the share of the image that is let through."""
        return torch.stack([vector.abs().mean(dim=(-2, -1)) for vector in self.vectors.values()])

    @torch.no_grad()
    def clamp(self) -> None:
        for vector in self.vectors.values():
            vector.clamp_(0, 1)

    def detached(self) -> dict[int, Tensor]:
        return {size: vector.detach().clone() for size, vector in self.vectors.items()}


def resized(heat: Tensor, size: int) -> Tensor:
    """A map (N, h, w) at size × size; averaging where it shrinks."""
    enlarged: Tensor = torch.nn.functional.interpolate(
        heat.unsqueeze(1), size=(size, size), mode="bilinear", align_corners=False, antialias=True
    )
    return enlarged.squeeze(1)


def windows(maps: Tensor, corners: Tensor, size: tuple[int, int]) -> Tensor:
    """A part of each map (M, h, w), of that size, from its own upper left corner (M, 2): (M, H, W)."""
    parts = [
        one[top : top + size[0], left : left + size[1]]
        for one, (top, left) in zip(maps, corners.tolist(), strict=True)
    ]
    return torch.stack(parts)
