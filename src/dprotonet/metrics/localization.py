"""Does the explanation lie on the object? DICE, IOU, PPV, sensitivity, pointing and energy (Section 4.2).

The truth is a segmentation or a filled box, bool (N, H, W). An image whose truth is empty has no right
answer: its value is NaN, never a hit, and `nanmean` leaves it out. An empty finding is 0: saying nothing is
no way out of the mean. Maps are ranked as in `ranking.ranks`, ties in reading order.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from dprotonet.metrics.guards import check_heat, widened
from dprotonet.metrics.ranking import ranks

SHARES = tuple(percent / 100 for percent in range(1, 100))
"""The thresholds of the paper's curves: the top 1 % to 99 % of the pixels."""


class Overlap(NamedTuple):
    """Agreement of found and true pixels, each (N,), or (N, S) for S thresholds; NaN where truth is empty."""

    dice: Tensor
    iou: Tensor
    ppv: Tensor
    sensitivity: Tensor


def top_share(maps: Tensor, share: float) -> Tensor:
    """The hottest round(share · H · W) pixels, bool (N, H, W)."""
    return ranks(maps) < _pixels(maps, share)


def overlap(found: Tensor, truth: Tensor) -> Overlap:
    """2TP / (FP + 2TP + FN), TP / (FP + TP + FN), TP / (TP + FP), TP / (TP + FN); both bool (N, H, W)."""
    _check_truth(found, truth)
    if found.dtype != torch.bool:
        raise ValueError(f"found pixels are {found.dtype}; they must be bool, as from top_share")
    hits = (found & truth).flatten(1).sum(dim=1)
    return _overlap(hits, found.flatten(1).sum(dim=1), truth.flatten(1).sum(dim=1))


def sweep(maps: Tensor, truth: Tensor, shares: Sequence[float] = SHARES) -> Overlap:
    """`overlap` of the top shares of the pixels, every value (N, S); maps and truth (N, H, W)."""
    _check_truth(maps, truth)
    place, own = ranks(maps).flatten(1), truth.flatten(1).long()
    hits = torch.zeros_like(own).scatter_(1, place, own).cumsum(dim=1)  # (N, HW) of the k + 1 hottest
    hits = torch.cat([torch.zeros_like(hits[:, :1]), hits], dim=1)
    found = torch.tensor([_pixels(maps, share) for share in shares], device=maps.device, dtype=torch.long)
    return _overlap(hits[:, found], found, hits[:, -1:])


def pointing(maps: Tensor, truth: Tensor) -> Tensor:
    """1 where the hottest pixel, the first of equals, lies in the truth, without a margin; else 0 (N,)."""
    _check_truth(maps, truth)
    hit = ((ranks(maps) == 0) & truth).flatten(1).any(dim=1)
    return _unless_empty(hit.float(), truth.flatten(1).sum(dim=1))


def energy_share(heatmaps: Tensor, truth: Tensor) -> Tensor:
    """Share of the heat inside the truth (N,); 0 for a map without heat. Heatmaps must not be negative."""
    _check_truth(heatmaps, truth)
    check_heat(heatmaps, "energy")
    heat = widened(heatmaps.flatten(1))
    inside, total = (heat * truth.flatten(1)).sum(dim=1), heat.sum(dim=1)
    return _unless_empty(torch.where(total > 0, inside / total, 0), truth.flatten(1).sum(dim=1))


def pointing_within(maps: Tensor, truth: Tensor, pixels: float) -> Tensor:
    """1 where the hottest pixel, the first of equals, lies in the truth or so near to it; else 0 (N,)."""
    _check_truth(maps, truth)
    hottest = (ranks(maps) == 0).flatten(1).int().argmax(dim=1)
    width = maps.shape[-1]
    places = torch.arange(truth[0].numel(), device=maps.device)
    down = places // width - (hottest // width).unsqueeze(1)
    along = places % width - (hottest % width).unsqueeze(1)
    near = (down.square() + along.square() <= pixels**2) & truth.flatten(1)
    return _unless_empty(near.any(dim=1).float(), truth.flatten(1).sum(dim=1))


def largest_part(mask: Tensor) -> Tensor:
    """Of a mask (H, W) bool its largest connected part, corners touching; of equals the lowest one."""
    names = torch.arange(1.0, mask.numel() + 1, device=mask.device).view_as(mask) * mask
    while True:  # every pixel takes the largest name among its neighbours, until nothing changes
        spread = max_pool2d(names[None], 3, stride=1, padding=1)[0] * mask
        if torch.equal(spread, names):
            break
        names = spread
    kinds, sizes = names[mask].unique(return_counts=True)
    return mask & (names == kinds[sizes == sizes.max()].max()) if len(kinds) else mask


def _overlap(hits: Tensor, found: Tensor, true: Tensor) -> Overlap:
    """From counts of pixels that broadcast; where nothing is found all four are 0."""
    pairs = ((2 * hits, found + true), (hits, found + true - hits), (hits, found), (hits, true))
    return Overlap(*(_unless_empty(part / whole.clamp_min(1), true) for part, whole in pairs))


def _unless_empty(values: Tensor, true: Tensor) -> Tensor:
    return values.masked_fill(true == 0, torch.nan)


def _pixels(maps: Tensor, share: float) -> int:
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; it is a share of the pixels, from 0 to 1")
    return round(share * maps[0].numel())


def _check_truth(maps: Tensor, truth: Tensor) -> None:
    if maps.ndim != 3 or maps.shape != truth.shape or truth.dtype != torch.bool:
        shapes = f"maps {tuple(maps.shape)} against truth {tuple(truth.shape)} {truth.dtype}"
        raise ValueError(f"{shapes}; both must be (N, H, W), the truth bool")
