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

    def mean(self, size: tuple[int, int]) -> Tensor:
        """The mean of g(d_i) over sizes, (N, H, W), as two matrix products: a fraction of the time.

        On a CPU image by image: a product rounds otherwise for another number of images.
        """
        down, across = _enlarging(tuple(self.vectors), size, self.parameters[0])
        if self.parameters[0].device.type != "cpu":
            return _enlarged_mean(self.parameters, down, across)
        images = zip(*(vector.split(1) for vector in self.parameters), strict=True)
        return torch.cat([_enlarged_mean(vectors, down, across) for vectors in images])

    def area(self) -> Tensor:
        """Mean of |d_i|, (S, N): the share of the image that is let through."""
        return torch.stack([vector.abs().mean(dim=(-2, -1)) for vector in self.vectors.values()])

    @torch.no_grad()
    def clamp(self) -> None:
        for vector in self.vectors.values():
            vector.clamp_(0, 1)

    def detached(self) -> dict[int, Tensor]:
        return {size: vector.detach().clone() for size, vector in self.vectors.items()}


def _enlarged_mean(vectors: Sequence[Tensor], down: Tensor, across: Sequence[Tensor]) -> Tensor:
    wide = [vector @ matrix for vector, matrix in zip(vectors, across, strict=True)]
    return down @ torch.cat(wide, dim=-2)


def _enlarging(sizes: Sequence[int], size: tuple[int, int], like: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What enlarges the rows of all mask vectors (H, Σ s), divided by their number, and columns (s, W)."""
    down = torch.cat([upsample(torch.eye(one).unsqueeze(0), (size[0], one))[0] for one in sizes], dim=1)
    across = [upsample(torch.eye(one).unsqueeze(0), (one, size[1]))[0].to(like) for one in sizes]
    return down.to(like) / len(sizes), across


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
