"""Prediction sets against planted truth: the coverage that was asked for, from any probabilities."""

import math

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.prediction_sets import (
    conformal_scores,
    images_for,
    most_covered,
    prediction_set,
    score_limit,
)


def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Probabilities far too sure of labels drawn from tamer ones: sets must cover all the same."""
    random = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(count, 6, generator=random, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=random).flatten()
    return (3 * logits).softmax(1), labels


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])  # below the accuracy sets cover more than asked
@pytest.mark.parametrize("count", [30, 200])
def test_sets_cover_what_was_asked_on_average_over_calibrations(coverage: float, count: int) -> None:
    covered = []
    for seed in range(60):
        shares, labels = drawn(count + 400, seed)
        limit = score_limit(conformal_scores(shares[:count], labels[:count]), coverage)
        sets = prediction_set(shares[count:], limit)
        covered.append(sets.gather(1, labels[count:, None]).double().mean().item())
    mean = sum(covered) / len(covered)
    assert coverage - 0.015 < mean < coverage + 1 / (count + 1) + 0.03


def test_probabilities_that_are_too_sure_get_larger_sets_than_their_sum_says() -> None:
    shares, labels = drawn(4000, 0)
    limit = score_limit(conformal_scores(shares[:2000], labels[:2000]), 0.9)
    sets = prediction_set(shares[2000:], limit)
    stated = (shares[2000:] * sets).sum(1).mean()
    assert stated > 0.97  # by its own word; 0.9 in truth
    assert sets.gather(1, labels[2000:, None]).double().mean().item() == pytest.approx(0.9, abs=0.02)


def test_the_limit_by_hand() -> None:
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert score_limit(scores, 0.9) == pytest.approx(0.9)  # the ninth of nine: (9 + 1) × 0.9
    assert score_limit(scores.flip(0), 0.5) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="needs 10 scores, and there are 9"):
        score_limit(scores, 0.905)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_so_many_images_and_no_fewer(coverage: float) -> None:
    needed = images_for(coverage)
    score_limit(torch.zeros(needed), coverage)
    assert most_covered(needed) >= coverage - 1e-12
    with pytest.raises(ValueError, match="scores"):
        score_limit(torch.zeros(needed - 1), coverage)


def test_a_set_has_all_within_the_limit_and_never_nothing() -> None:
    shares = torch.tensor([[0.6, 0.3, 0.1], [0.34, 0.33, 0.33]], dtype=torch.float64)
    assert prediction_set(shares, 0.7).tolist() == [[True, True, False], [True, True, True]]
    assert prediction_set(shares, 0.0).tolist() == [[True, False, False], [True, False, False]]
    assert prediction_set(shares[0], 0.95).tolist() == [True, True, True]


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1.0, math.nan])
def test_a_coverage_is_a_share(coverage: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        score_limit(torch.zeros(10), coverage)
