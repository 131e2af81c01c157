"""How good answers are where an image may have several labels: precision, ranking, F1, label by label."""

import math

import torch
from torch import Tensor

from dprotonet.metrics.guards import scores_of_two_kinds


def average_precision(scores: Tensor, positive: Tensor) -> float:
    """Mean precision at the places of the positives, from the highest score down; NaN without any.

    Scores (N,), none of them NaN; positive (N,), of bool or 0 and 1. Images with equal scores come together:
    precision is that after all of them, so that their order does not matter.
    """
    values, hit = scores_of_two_kinds(scores, positive)
    if not hit.any():
        return math.nan
    _, level = values.unique(return_inverse=True)
    level = level.max() - level  # 0 the highest
    hits = torch.bincount(level, weights=hit.double())
    counts = torch.bincount(level).double()
    precision = hits.cumsum(0) / counts.cumsum(0)
    return ((precision * hits).sum() / hits.sum()).item()


def mean_average_precision(scores: Tensor, labels: Tensor) -> float:
    """The mean over labels that some image has; scores and labels (N, L)."""
    _check(scores, labels)
    each = [average_precision(scores[:, k], labels[:, k] > 0) for k in range(scores.shape[1])]
    known = [value for value in each if value == value]
    return sum(known) / len(known) if known else math.nan


def label_accuracy(logits: Tensor, labels: Tensor) -> float:
    """Share of right answers to all questions whether an image has a label, at a probability of 0.5."""
    _check(logits, labels)
    return ((logits > 0) == (labels > 0)).double().mean().item()


def f1_score(predicted: Tensor, positive: Tensor) -> float:
    """2 TP / (2 TP + FP + FN) of yes and no (N,); NaN where there is neither."""
    predicted, positive = predicted > 0, positive > 0
    both, either = int((predicted & positive).sum()), int(predicted.sum()) + int(positive.sum())
    return 2 * both / either if either else math.nan


def _check(scores: Tensor, labels: Tensor) -> None:
    if scores.ndim != 2 or scores.shape != labels.shape:
        shapes = f"scores {tuple(scores.shape)} against labels {tuple(labels.shape)}"
        raise ValueError(f"{shapes}; both must be (N, L), a column for each label")
