"""Accuracy and its relatives, all from the confusion matrix, and AUROC for two classes (Section 4.2)."""

import math

import torch
from torch import Tensor

from dprotonet.metrics.guards import class_numbers, scores_of_two_kinds


def confusion_matrix(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """Counts (C, C), rows true, columns predicted; labels and predictions (N,), integers from 0 to C - 1."""
    if labels.ndim != 1 or labels.shape != predictions.shape:
        shapes = f"labels {tuple(labels.shape)} against predictions {tuple(predictions.shape)}"
        raise ValueError(f"{shapes}; both must be (N,), one per image")
    rows, columns = class_numbers(labels, "label", classes), class_numbers(predictions, "prediction", classes)
    return torch.bincount(rows * classes + columns, minlength=classes * classes).reshape(classes, classes)


def accuracy(confusion: Tensor) -> float:
    """Share of right answers; NaN when there is no image."""
    return (confusion.diagonal().sum().double() / confusion.sum()).item()


def recall_per_class(confusion: Tensor) -> Tensor:
    """Share of right answers in each class (C,); NaN for a class without images."""
    return confusion.diagonal().double() / confusion.sum(dim=1)


def balanced_accuracy(confusion: Tensor) -> float:
    """Mean recall over the classes that have images."""
    return recall_per_class(confusion).nanmean().item()


def sensitivity(confusion: Tensor, positive: int = 1) -> float:
    """Share of the positive class's images that are found, TP / (TP + FN); NaN when it has none."""
    own = _row(confusion, positive)
    return (own[positive].double() / own.sum()).item()


def specificity(confusion: Tensor, positive: int = 1) -> float:
    """Share of all other images not called positive, TN / (TN + FP); NaN when there are no others."""
    own = _row(confusion, positive)
    others = confusion.sum() - own.sum()
    false = confusion[:, positive].sum() - own[positive]
    return ((others - false).double() / others).item()


def auroc(scores: Tensor, positive: Tensor) -> float:
    """Chance that a positive scores above a negative, ties counting half; NaN if one kind is missing.

    Scores (N,), none of them NaN; positive (N,), of bool or the integers 0 and 1.
    """
    values, hit = scores_of_two_kinds(scores, positive)
    _, level, counts = values.unique(return_inverse=True, return_counts=True)
    rank = (counts.cumsum(0).double() - (counts - 1).double() / 2)[level]  # mean rank within ties
    hits, misses = int(hit.sum()), int((~hit).sum())
    if not hits or not misses:
        return float("nan")
    return ((rank[hit].sum() - hits * (hits + 1) / 2) / (hits * misses)).item()


def auroc_interval(area: float, hits: int, misses: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Where an AUROC of so many images of either class may truly lie (Hanley and McNeil, 1982; 95 %).

    On the logit scale, so that it stays within [0, 1]; NaN without images of both classes, or for a perfect
    or hopeless one, whose standard error would be 0.
    """
    if not hits or not misses or not 0 < area < 1:
        return math.nan, math.nan
    above, below = area / (2 - area), 2 * area * area / (1 + area)
    spread = area * (1 - area) + (hits - 1) * (above - area**2) + (misses - 1) * (below - area**2)
    reach = z * math.sqrt(spread / (hits * misses)) / (area * (1 - area))
    middle = math.log(area / (1 - area))
    low, high = (1 / (1 + math.exp(-end)) for end in (middle - reach, middle + reach))
    return low, high


def wilson_interval(right: float, total: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Where a share of `right` among `total` may truly lie (Wilson, 1927; 95 %); NaN when there is none."""
    if not total:
        return float("nan"), float("nan")
    share, weight = right / total, z * z / total
    middle = share + weight / 2
    reach = z * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    return max(0.0, (middle - reach) / (1 + weight)), min(1.0, (middle + reach) / (1 + weight))


def _row(confusion: Tensor, positive: int) -> Tensor:
    """Counts of the images of the positive class (C,)."""
    if not 0 <= positive < len(confusion):
        raise ValueError(f"positive is {positive}; the classes are 0 to {len(confusion) - 1}")
    return confusion[positive]
