"""The order of the pixels of a map, hottest first: what deletion, insertion and top shares have in common."""

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_maps


def ranks(maps: Tensor) -> Tensor:
    """Place of every pixel, 0 the hottest, ties in reading order; int64 (N, H, W) of maps (N, H, W)."""
    check_maps(maps)
    order = maps.flatten(1).sort(dim=1, descending=True, stable=True).indices
    places = torch.arange(order.shape[1], device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places).reshape(maps.shape)
