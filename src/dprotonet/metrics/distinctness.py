"""Do the rows shown for one image show different things? Their overlap, and the parts they lie on.

Rows are the maps (N, H, W) of the prototypes that speak for one decision. What is undefined is NaN: one row
alone overlaps with nothing, and an image that shows no part has none to be covered.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_maps
from dprotonet.metrics.keypoints import Size, in_box, peaks
from dprotonet.metrics.localization import top_share
from dprotonet.metrics.prototypes import covered_parts

FAR = 32 / 224
"""From which distance on two peaks are at different places, as a share of the longer side."""


class Distinctness(NamedTuple):
    """Means over pairs of rows: IoU of their hottest tenths, and whether their peaks are far apart."""

    iou: float
    apart: float


class Coverage(NamedTuple):
    """How many different parts the peaks lie on, how many the rows cover, and how many are to be seen."""

    named: float
    covered: float
    visible: int


def distinctness(rows: Tensor, *, share: float = 0.1, far: float = FAR) -> Distinctness:
    """How much the hottest `share` of the pixels of rows (N, H, W) overlap, pair by pair.

    Rows that show the same have an IoU of 1, and none of their peaks are more than `far` apart.
    """
    hottest = top_share(rows, share).flatten(1).double()
    first, second = torch.triu_indices(len(rows), len(rows), offset=1, device=rows.device)
    common = (hottest @ hottest.T)[first, second]
    either = hottest.sum(dim=1)[first] + hottest.sum(dim=1)[second] - common
    places = peaks(rows).double()
    gaps = (places[first] - places[second]).norm(dim=1)
    apart = (gaps > far * max(rows.shape[1:])).double()
    return Distinctness(float((common / either).mean()), float(apart.mean()))


def coverage(rows: Tensor, parts: Tensor) -> Coverage:
    """Of parts, bool (K, H, W): those at the rows' peaks, and those that a hottest tenth covers.

    A tenth covers a part as in `prototypes.covered_parts`.
    """
    check_maps(rows)
    if parts.ndim != 3 or parts.shape[1:] != rows.shape[1:] or parts.dtype != torch.bool:
        shapes = f"rows {tuple(rows.shape)} against parts {tuple(parts.shape)} {parts.dtype}"
        raise ValueError(f"{shapes}; they must be (N, H, W) and bool (K, H, W)")
    x, y = peaks(rows).unbind(dim=1)
    named = parts[:, y, x].any(dim=1)
    covered = covered_parts(rows, parts.expand(len(rows), *parts.shape)).any(dim=0)
    return _counted(named, covered, int(parts.flatten(1).any(dim=1).sum()))


def keypoint_coverage(points: Tensor, keypoints: Tensor, *, size: Size) -> Coverage:
    """The same of keypoints (K, 2) round the peaks (N, 2): nearest in its box, or anywhere in a box."""
    inside = in_box(points, keypoints.expand(len(points), *keypoints.shape), size=size)  # (N, K)
    gaps = (keypoints - points.unsqueeze(1) - 0.5).norm(dim=2).masked_fill(~inside, torch.inf)
    nearest = torch.zeros_like(inside).scatter_(1, gaps.argmin(dim=1, keepdim=True), True) & inside
    visible = int((~keypoints.isnan().any(dim=1)).sum())
    return _counted(nearest.any(dim=0), inside.any(dim=0), visible)


def _counted(named: Tensor, covered: Tensor, visible: int) -> Coverage:
    if not visible:
        return Coverage(torch.nan, torch.nan, 0)
    return Coverage(float(named.sum()), float(covered.sum()), visible)
