"""Pure tensor functions shared by several rooms."""

import torch
from torch import Tensor


def upsample(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear enlargement of maps (..., h, w) to (..., H, W)."""
    flat = maps.reshape(-1, 1, *maps.shape[-2:])
    enlarged = torch.nn.functional.interpolate(flat, size=size, mode="bilinear", align_corners=False)
    return enlarged.reshape(*maps.shape[:-2], *size)


def unit_range(maps: Tensor) -> Tensor:
    """N(X) of the paper: each map (..., H, W) shifted and scaled to [0, 1]; a flat map becomes all zero."""
    low = maps.amin(dim=(-2, -1), keepdim=True)
    span = maps.amax(dim=(-2, -1), keepdim=True) - low
    return torch.where(span > 0, (maps - low) / span.clamp_min(torch.finfo(maps.dtype).tiny), 0.0)
