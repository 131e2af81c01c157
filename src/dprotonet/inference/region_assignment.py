"""Which regions a prototype may be found in: any of them, or only the one that was made for it."""

from typing import Protocol

import torch
from torch import Tensor, nn

from dprotonet.inference.nearest import Nearest, nearest_regions


class RegionAssignment(Protocol):
    """Regions (B, R, D) and prototypes (P, D) to the nearest allowed region, (B, P).

    `wanted` (K,) names the prototypes that matter; the answer is then (B, K).
    """

    def __call__(self, regions: Tensor, vectors: Tensor, wanted: Tensor | None = None) -> Nearest: ...


def any_region(regions: Tensor, vectors: Tensor, wanted: Tensor | None = None) -> Nearest:
    """The nearest of all regions: min_k ||z_k - p_j||²."""
    return nearest_regions(regions, vectors if wanted is None else vectors[wanted])


def any_region_at_once(regions: Tensor, vectors: Tensor, wanted: Tensor | None = None) -> Nearest:
    """The same in plain operations over all images at once: for export, where their number is not known yet.

    The search is that of `nearest_regions`, which takes its images in blocks and has a gradient of its own.
    """
    vectors = vectors if wanted is None else vectors[wanted]
    mean = regions.mean(dim=1, keepdim=True)
    offset = regions - mean
    lengths = (offset * (regions + mean)).sum(dim=-1, keepdim=True)  # (B, R, 1)
    region = (lengths - 2 * offset @ vectors.T).argmin(dim=1)  # (B, P)
    chosen = regions.gather(1, region.unsqueeze(-1).expand(-1, -1, regions.shape[-1]))
    return Nearest((chosen - vectors).square().sum(dim=-1), region)


def own_region(regions: Tensor, vectors: Tensor, wanted: Tensor | None = None) -> Nearest:
    """Prototype j looks at region j only (XProtoNet): ||z_j - p_j||²."""
    if regions.shape[1:] != vectors.shape:
        raise ValueError(f"regions {tuple(regions.shape)} are not one for each of {tuple(vectors.shape)}")
    number = torch.arange(len(vectors), device=regions.device) if wanted is None else wanted
    wide = torch.promote_types(torch.float32, regions.dtype)
    with torch.autocast(regions.device.type, enabled=False):
        gap = regions[:, number].to(wide) - vectors[number].to(wide)
        return Nearest(gap.square().sum(dim=-1), number.expand(regions.shape[0], -1))


class PartRegion(nn.Module):
    """Prototype j looks at the region of its part only: ||z_part(j) - p_j||², `part` (P,)."""

    part: Tensor

    def __init__(self, part: Tensor) -> None:
        super().__init__()
        self.register_buffer("part", part)

    def forward(self, regions: Tensor, vectors: Tensor, wanted: Tensor | None = None) -> Nearest:
        part, vectors = (self.part, vectors) if wanted is None else (self.part[wanted], vectors[wanted])
        wide = torch.promote_types(torch.float32, regions.dtype)
        with torch.autocast(regions.device.type, enabled=False):
            gap = regions.index_select(1, part).to(wide) - vectors.to(wide)
            return Nearest(gap.square().sum(dim=-1), part.expand(regions.shape[0], -1))
