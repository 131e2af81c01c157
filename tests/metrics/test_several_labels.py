"""Measures of several labels against slow and literal ones."""

import math

import pytest
import torch

from dprotonet.metrics.several_labels import (
    average_precision,
    f1_score,
    label_accuracy,
    mean_average_precision,
)


def literal_precision(scores: list[float], positive: list[bool]) -> float:
    """Σ over thresholds of precision times the recall gained there."""
    total, hits = 0.0, sum(positive)
    before = 0
    for level in sorted(set(scores), reverse=True):
        above = [truth for score, truth in zip(scores, positive, strict=True) if score >= level]
        total += sum(above) / len(above) * (sum(above) - before) / hits
        before = sum(above)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_average_precision(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 12, (30,), generator=generator).double()  # with ties
    positive = torch.rand(30, generator=generator) < 0.3
    expected = literal_precision(scores.tolist(), positive.tolist())
    assert average_precision(scores, positive) == pytest.approx(expected)


def test_average_precision_of_no_positive_is_nan() -> None:
    assert math.isnan(average_precision(torch.rand(3), torch.zeros(3, dtype=torch.bool)))


def test_the_mean_leaves_out_labels_that_nobody_has() -> None:
    scores, labels = torch.tensor([[2.0, 1.0], [1.0, 3.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert mean_average_precision(scores, labels) == 1.0


def test_shares_and_f1() -> None:
    logits = torch.tensor([[1.0, -1.0], [-1.0, -1.0]])
    labels = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    assert label_accuracy(logits, labels) == 0.75
    assert f1_score(logits[:, 0] > 0, labels[:, 0]) == 1.0
    assert f1_score(logits[:, 1] > 0, labels[:, 1]) == 0.0
    assert math.isnan(f1_score(torch.zeros(2), torch.zeros(2)))


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="a column for each label"):
        label_accuracy(torch.zeros(3, 2), torch.zeros(3))
