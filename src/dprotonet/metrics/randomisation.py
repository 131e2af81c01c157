"""Does the explanation notice that the network has forgotten? What a sanity check compares its maps by.

A map that looks the same after the weights were drawn anew, layer by layer, explains the image, not the
network (Adebayo et al., 2018). The loop that randomises is elsewhere; here are the two measures of likeness.
"""

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from dprotonet.metrics.guards import check_maps, within_unit

_STEADY = (0.01**2, 0.03**2)  # K1 and K2 of Wang et al. (2004), for values in [0, 1]


def rank_correlation(maps_a: Tensor, maps_b: Tensor) -> Tensor:
    """Spearman's coefficient of the pixels of two maps, ties averaged; (N,) of (N, H, W), in float64.

    NaN where a map is flat: it has no order.
    """
    _check_alike(maps_a, maps_b)
    first, second = (_centred(_average_ranks(maps.flatten(1).double())) for maps in (maps_a, maps_b))
    scale = (first.square().sum(dim=1) * second.square().sum(dim=1)).sqrt()
    return (first * second).sum(dim=1) / scale


def structural_similarity(heatmaps_a: Tensor, heatmaps_b: Tensor) -> Tensor:
    """SSIM of heatmaps in [0, 1] (Wang et al., 2004); (N,) of (N, H, W), in float64.

    Under a Gaussian window of 11 × 11 pixels with sigma 1.5, the mean over its places inside the map.
    """
    _check_alike(heatmaps_a, heatmaps_b)
    if min(heatmaps_a.shape[1:]) < 11:
        raise ValueError(f"heatmaps are {tuple(heatmaps_a.shape[1:])}; the window has 11 × 11 pixels")
    a, b = (within_unit(maps, "heatmaps").double().unsqueeze(1) for maps in (heatmaps_a, heatmaps_b))
    mean_a, mean_b, square_a, square_b, product = _windowed(torch.cat([a, b, a * a, b * b, a * b], dim=1))
    variances = square_a - mean_a**2 + square_b - mean_b**2
    luminance = (2 * mean_a * mean_b + _STEADY[0]) / (mean_a**2 + mean_b**2 + _STEADY[0])
    structure = (2 * (product - mean_a * mean_b) + _STEADY[1]) / (variances + _STEADY[1])
    return (luminance * structure).mean(dim=(1, 2))


def _average_ranks(rows: Tensor) -> Tensor:
    """Place of each value in its row from 1 for the lowest, equals having the mean of theirs (N, M)."""
    ordered = rows.sort(dim=1).values
    below = torch.searchsorted(ordered, rows)
    not_above = torch.searchsorted(ordered, rows, right=True)
    return (below + not_above + 1).double() / 2


def _centred(rows: Tensor) -> Tensor:
    return rows - rows.mean(dim=1, keepdim=True)


def _windowed(planes: Tensor) -> tuple[Tensor, ...]:
    """Local means of the planes (N, 5, H, W), each (N, H - 10, W - 10)."""
    line = torch.exp(-0.5 * (torch.arange(-5, 6, device=planes.device, dtype=planes.dtype) / 1.5) ** 2)
    line = (line / line.sum()).expand(planes.shape[1], 1, 1, -1)
    rows = conv2d(planes, line, groups=planes.shape[1])
    return conv2d(rows, line.transpose(2, 3), groups=planes.shape[1]).unbind(dim=1)


def _check_alike(maps_a: Tensor, maps_b: Tensor) -> None:
    check_maps(maps_a)
    check_maps(maps_b)
    if maps_a.shape != maps_b.shape:
        raise ValueError(f"maps have shapes {tuple(maps_a.shape)} and {tuple(maps_b.shape)}; must be equal")
