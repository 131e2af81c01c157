"""For every image and prototype the nearest region, without keeping all distances.

The field computes the whole (B, R, P) tensor and lets autograd store it; at R = 720 and P = 2000 that is most
of the memory of a training step. Only the chosen regions receive a gradient, so only their indices are kept.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

_BLOCK_ELEMENTS = 12_000_000  # of the largest temporary, (images, P, R) or (images, P, D): about 48 MB


class Nearest(NamedTuple):
    """The smallest squared distance over regions and where it is; both (B, P)."""

    distances: Tensor
    region: Tensor


def nearest_regions(regions: Tensor, prototypes: Tensor) -> Nearest:
    """min_k ||z_k - p_j||² of Eqs. (1), (5) and (6); regions (B, R, D), prototypes (P, D).

    Where it is, `region`, is argmin_k of Eqs. (12) and (13): the region in which an image, or the source of a
    prototype, has the prototype, and which the decoder keeps active.
    Values and gradients are those of the literal formula. Always in float32 or wider, also under autocast:
    half precision would confuse near neighbours.
    """
    if regions.shape[-1] != prototypes.shape[-1]:
        raise ValueError(f"regions have {regions.shape[-1]} channels, prototypes {prototypes.shape[-1]}")
    wide = torch.promote_types(torch.float32, torch.promote_types(regions.dtype, prototypes.dtype))
    with torch.autocast(regions.device.type, enabled=False):
        distances, region = _NearestRegions.apply(regions.to(wide), prototypes.to(wide))
    return Nearest(distances, region)


def chosen_regions(regions: Tensor, region: Tensor) -> Tensor:
    """The region vectors (B, P, D) that `region` (B, P) names."""
    chosen = regions.flatten(0, 1).index_select(0, _rows(regions, region))
    return chosen.unflatten(0, region.shape)


def _rows(regions: Tensor, region: Tensor) -> Tensor:
    """Where the named regions are once images and regions are one axis, (B·P,)."""
    first = torch.arange(len(regions), device=regions.device) * regions.shape[1]
    return (region + first.unsqueeze(1)).flatten()


def _images_a_block(regions: Tensor, prototypes: Tensor) -> int:
    widest = len(prototypes) * max(regions.shape[1], regions.shape[2])
    return max(1, _BLOCK_ELEMENTS // max(1, widest))


def _search(regions: Tensor, prototypes: Tensor) -> Tensor:
    """Argmin over regions of ||z||² - 2 z·p, (b, P), the first of equals; ||p||² is the same for all regions.

    The mean region c of an image is taken off first, z = c + o: what remains, o·(z + c) - 2 o·p, differs by a
    constant and rounds at the scale of the differences between regions, not of the regions themselves.
    """
    mean = regions.mean(dim=1, keepdim=True)
    offset = regions - mean
    lengths = (offset * (regions + mean)).sum(-1)  # (b, R)
    gap = torch.addmm(lengths.flatten(), prototypes, offset.flatten(0, 1).T, alpha=-2)  # (P, b·R)
    return gap.unflatten(1, lengths.shape).min(dim=-1).indices.T


class _NearestRegions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, regions: Tensor, prototypes: Tensor) -> tuple[Tensor, Tensor]:
        distances, indices = [], []
        for block in regions.split(_images_a_block(regions, prototypes)):
            index = _search(block, prototypes)
            # Measured anew from the difference: the expanded square cancels badly near zero.
            distances.append(chosen_regions(block, index).sub_(prototypes).square_().sum(-1))
            indices.append(index)
        region = torch.cat(indices)
        ctx.save_for_backward(regions, prototypes, region)
        ctx.mark_non_differentiable(region)
        return torch.cat(distances), region

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        regions, prototypes, region = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_regions = torch.zeros_like(regions, memory_format=torch.contiguous_format)
        grad_prototypes = torch.zeros_like(prototypes)
        size = _images_a_block(regions, prototypes)
        for first in range(0, len(regions), size):
            block = slice(first, first + size)
            pull = chosen_regions(regions[block], region[block]).sub_(prototypes)
            pull.mul_((2 * grad[block]).unsqueeze(-1))  # (b, P, D)
            grad_prototypes -= pull.sum(0)
            rows = _rows(regions[block], region[block])
            grad_regions[block].flatten(0, 1).index_add_(0, rows, pull.flatten(0, 1))
        return grad_regions, grad_prototypes
