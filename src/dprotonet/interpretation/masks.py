"""Mask vectors of several sizes, learned for many images at once.

Of images s × s numbers, of volumes d × h × w. Unstated: how mask vectors are enlarged and kept within [0, 1];
here bilinearly (pixel centres, no aligned corners; of volumes trilinearly) and by clamping after every step,
so that Eq. (20)'s m in [0, 1] holds throughout.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.ops import upsample

Size = int | tuple[int, ...]  # s for s × s, of a volume s × s × s; or the length of each axis
Extent = tuple[int, ...]  # (H, W) of images, (D, H, W) of volumes


class MaskStack:
    """Mask vectors d_i (N, s, s), one of each size per image; of volumes (N, d, h, w)."""

    def __init__(self, vectors: Mapping[Size, Tensor]) -> None:
        self.vectors = {
            size: vector.detach().clone().requires_grad_(True) for size, vector in vectors.items()
        }

    @classmethod
    def constant(cls, sizes: Sequence[Size], of: Extent, like: Tensor, value: float) -> "MaskStack":
        """All of them at one value, the paper's τ, for the images (N, …) that they are `like`."""
        return cls(
            {
                size: torch.full((len(like), *mask_shape(size, of)), value, device=like.device)
                for size in sizes
            }
        )

    @property
    def parameters(self) -> list[Tensor]:
        return list(self.vectors.values())

    def enlarged(self, size: Extent) -> Tensor:
        """g(d_i) of every size and image, (S, N, H, W)."""
        return torch.stack([upsample(vector, size) for vector in self.vectors.values()])

    def mean(self, size: Extent) -> Tensor:
        """The mean of g(d_i) over sizes, (N, H, W), as two matrix products: a fraction of the time.

        On a CPU image by image: a product rounds otherwise for another number of images. Volumes are enlarged
        along their depth first, and then slice by slice.
        """
        vectors = self.parameters if len(size) == 2 else [_deepened(one, size[0]) for one in self.parameters]
        down, across = _enlarging([tuple(one.shape[-2:]) for one in vectors], size[-2:], vectors[0])
        if vectors[0].device.type != "cpu":
            mean = _enlarged_mean(vectors, down, across)
        else:
            images = zip(*(vector.split(1) for vector in vectors), strict=True)
            mean = torch.cat([_enlarged_mean(one, down, across) for one in images])
        return mean.reshape(-1, *size)

    def area(self) -> Tensor:
        """Mean of |d_i|, (S, N): the share of the image that is let through."""
        return torch.stack([vector.abs().flatten(1).mean(dim=1) for vector in self.vectors.values()])

    @torch.no_grad()
    def clamp(self) -> None:
        for vector in self.vectors.values():
            vector.clamp_(0, 1)

    def detached(self) -> dict[Size, Tensor]:
        return {size: vector.detach().clone() for size, vector in self.vectors.items()}


def mask_shape(size: Size, of: Extent) -> Extent:
    """How many numbers such a mask has along each axis; never more than a volume has slices.

    Unstated: the paper has images only. A number s is s × s × s for a volume, or as many as it has slices.
    """
    shape = (size,) * len(of) if isinstance(size, int) else size
    if len(shape) != len(of):
        kind = "volumes (d, h, w)" if len(of) == 3 else "images (h, w)"
        raise UserError(f"a mask of size {size} does not fit {kind}; give a number or one for each axis")
    return shape if len(of) == 2 else (min(shape[0], of[0]), *shape[1:])


def check_sizes(sizes: Sequence[Size], what: object) -> None:
    """A UserError unless these are sizes of masks, no two alike."""
    axes = [(size,) if isinstance(size, int) else size for size in sizes]
    known = all(isinstance(one, tuple) and one and all(isinstance(n, int) for n in one) for one in axes)
    if not axes or not known or min(map(min, axes)) < 1 or len(set(axes)) < len(axes):
        raise UserError(f"{what}: sizes >= 1, no two alike, are possible; of volumes also tuples (d, h, w)")


def _deepened(vector: Tensor, depth: int) -> Tensor:
    """(N, d, h, w) at every slice, (N·D, h, w); one volume after the other, for the same rounding."""
    matrix = upsample(torch.eye(vector.shape[1]).unsqueeze(0), (depth, vector.shape[1]))[0].to(vector)
    return torch.cat([(matrix @ one.flatten(1)).unflatten(1, one.shape[1:]) for one in vector])


def _enlarged_mean(vectors: Sequence[Tensor], down: Tensor, across: Sequence[Tensor]) -> Tensor:
    wide = [vector @ matrix for vector, matrix in zip(vectors, across, strict=True)]
    return down @ torch.cat(wide, dim=-2)


def _enlarging(shapes: Sequence[Extent], size: Extent, like: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What enlarges the rows of all mask vectors (H, Σ h), divided by their number, and columns (w, W)."""
    down = torch.cat([upsample(torch.eye(h).unsqueeze(0), (size[0], h))[0] for h, _ in shapes], dim=1)
    across = [upsample(torch.eye(w).unsqueeze(0), (w, size[1]))[0].to(like) for _, w in shapes]
    return down.to(like) / len(shapes), across


def resized(heat: Tensor, size: Size) -> Tensor:
    """Maps (N, H, W), of volumes (N, D, H, W), as masks of that size; averaging where they shrink."""
    shape = mask_shape(size, tuple(heat.shape[1:]))
    if len(shape) == 2:
        return _resized(heat.unsqueeze(1), shape).squeeze(1)
    slices = _resized(heat, shape[1:])  # slices as channels
    along = _resized(slices.flatten(2).transpose(1, 2).unsqueeze(1), (shape[1] * shape[2], shape[0]))
    return along.squeeze(1).transpose(1, 2).unflatten(2, shape[1:])


def _resized(maps: Tensor, size: Extent) -> Tensor:
    found: Tensor = torch.nn.functional.interpolate(
        maps, size=size, mode="bilinear", align_corners=False, antialias=True
    )
    return found


def windows(maps: Tensor, corners: Tensor, size: Extent) -> Tensor:
    """A part of each map (M, h, w), of that size, from its own first corner (M, 2): (M, H, W)."""
    parts = [
        one[tuple(slice(start, start + length) for start, length in zip(corner, size, strict=True))]
        for one, corner in zip(maps, corners.tolist(), strict=True)
    ]
    return torch.stack(parts)


def spread(values: Tensor, like: Tensor) -> Tensor:
    """One number each (N,), to be multiplied with maps (N, …)."""
    return values.view(-1, *(1,) * (like.ndim - 1))


def places(maps: Tensor) -> tuple[int, ...]:
    """The axes of maps (N, …) that are places."""
    return tuple(range(1, maps.ndim))
