"""Does the explanation notice that the network has forgotten? What a sanity check compares its maps by.

A map that looks the same after the weights were drawn anew, layer by layer, explains the image, not the
network (Adebayo et al., 2018). The loop that randomises is elsewhere; here is the measure of likeness.
"""

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_maps


def rank_correlation(maps_a: Tensor, maps_b: Tensor) -> Tensor:
    """Spearman's coefficient of the pixels of two maps, ties averaged; (N,) of (N, H, W), in float64.

    NaN where a map is flat: it has no order.
    """
    _check_alike(maps_a, maps_b)
    first, second = (_centred(_average_ranks(maps.flatten(1).double())) for maps in (maps_a, maps_b))
    scale = (first.square().sum(dim=1) * second.square().sum(dim=1)).sqrt()
    return (first * second).sum(dim=1) / scale


def _average_ranks(rows: Tensor) -> Tensor:
    """Place of each value in its row from 1 for the lowest, equals having the mean of theirs (N, M)."""
    ordered = rows.sort(dim=1).values
    below = torch.searchsorted(ordered, rows)
    not_above = torch.searchsorted(ordered, rows, right=True)
    return (below + not_above + 1).double() / 2


def _centred(rows: Tensor) -> Tensor:
    return rows - rows.mean(dim=1, keepdim=True)


def _check_alike(maps_a: Tensor, maps_b: Tensor) -> None:
    check_maps(maps_a)
    check_maps(maps_b)
    if maps_a.shape != maps_b.shape:
        raise ValueError(f"maps have shapes {tuple(maps_a.shape)} and {tuple(maps_b.shape)}; must be equal")
