"""Is a row about the place it shows? What is far from its peak is exchanged; place and score should stay.

After Sacha et al. (AAAI 2024, "Interpretability Benchmark for Evaluating Spatial Misalignment of Prototypical
Parts Explanations"), of whose measures these are the location change (PLC: one minus the IoU of the hottest
tenths before and after) and the activation change (PAC: by which share the prototype's activation falls).
They search for small changes that hurt most, outside the bounding box of the hottest twentieth; here all
outside a box of 72/224 of the side round the peak becomes another image, which needs no gradient, is the same
area for every map, and leaves the place itself untouched.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.metrics.keypoints import BOX, peaks
from dprotonet.metrics.localization import overlap, top_share


class Misalignment(NamedTuple):
    """Of each row (N,): one minus the IoU of the hottest tenths, and by how many pixels the peak moved."""

    location: Tensor
    moved: Tensor


def far_exchanged(images: Tensor, others: Tensor, points: Tensor, *, box: float = BOX) -> Tensor:
    """Images (N, C, H, W) round their points (N, 2), x and y, and `others` of the same shape elsewhere."""
    if images.ndim != 4 or images.shape != others.shape or points.shape != (len(images), 2):
        shapes = f"{tuple(images.shape)}, {tuple(others.shape)} and {tuple(points.shape)}"
        raise ValueError(f"images, others and points are {shapes}; wanted (N, C, H, W) twice and (N, 2)")
    height, width = images.shape[2:]
    x, y = points[:, 0, None], points[:, 1, None]
    columns = (torch.arange(width, device=images.device) - x).abs() <= round(box * width / 2)  # (N, W)
    rows = (torch.arange(height, device=images.device) - y).abs() <= round(box * height / 2)  # (N, H)
    return torch.where((rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1), images, others)


def misalignment(before: Tensor, after: Tensor, *, share: float = 0.1) -> Misalignment:
    """How far maps (N, H, W) moved when the image changed far from their peaks; 0 is best."""
    iou = overlap(top_share(before, share), top_share(after, share)).iou
    return Misalignment(1 - iou.double(), (peaks(before) - peaks(after)).double().norm(dim=1))


def activation_change(before: Tensor, after: Tensor) -> Tensor:
    """1 - after / before of scores (N,), below 0 where the score rose; NaN for one that was not positive.

    A score that became negative counts as 0, as it does for Sacha et al.
    """
    change = 1 - after.double().clamp_min(0) / before.double()
    return change.masked_fill(before <= 0, torch.nan)
