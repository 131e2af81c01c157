"""Pure tensor functions shared by several rooms."""

import torch
from torch import Tensor


def upsample(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    """Bilinear enlargement of maps (..., h, w) to (..., H, W); of volumes to a size (D, H, W) trilinear."""
    axes = len(size)
    flat = maps.reshape(-1, 1, *maps.shape[-axes:])
    mode = "bilinear" if axes == 2 else "trilinear"
    enlarged = torch.nn.functional.interpolate(flat, size=size, mode=mode, align_corners=False)
    return enlarged.reshape(*maps.shape[:-axes], *size)


def unit_range(maps: Tensor, *, axes: int = 2) -> Tensor:
    """N(X) of the paper: each map (..., H, W) shifted and scaled to [0, 1]; a flat map becomes all zero.

    Of volumes (..., D, H, W) with three `axes`.
    """
    places = tuple(range(-axes, 0))
    low = maps.amin(dim=places, keepdim=True)
    span = maps.amax(dim=places, keepdim=True) - low
    return torch.where(span > 0, (maps - low) / span.clamp_min(torch.finfo(maps.dtype).tiny), 0.0)
