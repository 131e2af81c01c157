"""Calibration against literal loops in float64, scikit-learn, and planted truth."""

import math

import pytest
import torch
from sklearn import metrics as reference
from torch import Tensor

from dprotonet.metrics.calibration import (
    COLDEST,
    HOTTEST,
    accuracy_at_coverage,
    brier_score,
    error_by_chance,
    expected_calibration_error,
    fitted_temperature,
    reliability_bins,
    tempered,
)


def logits_of(seed: int, images: int = 200, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Logits in float64, and labels drawn from their own softmax: perfectly calibrated at T = 1."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(images, classes, generator=random, dtype=torch.float64)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=random).flatten()


def literal_error(probabilities: Tensor, labels: Tensor, bins: int) -> float:
    error, total = 0.0, len(labels)
    for number in range(bins):
        sure, right = [], []
        for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True):
            top = max(row)
            if number / bins < top <= (number + 1) / bins:
                sure.append(top)
                right.append(row.index(top) == label)
        if sure:
            error += len(sure) / total * abs(sum(right) / len(right) - sum(sure) / len(sure))
    return error


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("seed", range(3))
def test_error_is_that_of_the_literal_loops(seed: int, bins: int) -> None:
    logits, labels = logits_of(seed)
    probabilities = (3 * logits).softmax(1)  # too sure
    expected = literal_error(probabilities, labels, bins)
    assert expected_calibration_error(probabilities, labels, bins=bins) == pytest.approx(expected, abs=1e-12)
    assert expected > 0.05


def test_error_by_hand() -> None:
    """Four answers of 90 %, three of them right, and one of 60 % that is wrong."""
    probabilities = torch.tensor([[0.9, 0.1]] * 4 + [[0.4, 0.6]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 0])
    assert expected_calibration_error(probabilities, labels) == pytest.approx((4 * 0.15 + 0.6) / 5)
    full = [item for item in reliability_bins(probabilities, labels) if item.images]
    assert [(item.images, item.accuracy) for item in full] == [(1, 0.0), (4, 0.75)]
    assert [item.confidence for item in full] == pytest.approx([0.6, 0.9])


def test_bins_hold_their_upper_edge_and_every_image() -> None:
    edges = torch.tensor([[0.5, 0.5], [0.6, 0.4], [1.0, 0.0]], dtype=torch.float64)
    bins = reliability_bins(edges, torch.tensor([0, 0, 1]), bins=10)
    assert [item.images for item in bins] == [0, 0, 0, 0, 1, 1, 0, 0, 0, 1]
    assert math.isnan(bins[0].accuracy)
    assert bins[9].accuracy == 0


def test_calibrated_answers_have_a_small_error_and_sure_ones_a_large() -> None:
    logits, labels = logits_of(0, images=20000)
    assert expected_calibration_error(logits.softmax(1), labels) < 0.012
    assert expected_calibration_error((4 * logits).softmax(1), labels) > 0.15


def test_brier_score_is_twice_that_of_two_classes_and_the_literal_sum() -> None:
    logits, labels = logits_of(1, classes=2)
    shares = logits.softmax(1)
    assert brier_score(shares, labels) == pytest.approx(2 * reference.brier_score_loss(labels, shares[:, 1]))
    logits, labels = logits_of(2)
    rows = zip(logits.softmax(1).tolist(), labels.tolist(), strict=True)
    literal = [sum((p - (k == label)) ** 2 for k, p in enumerate(row)) for row, label in rows]
    assert brier_score(logits.softmax(1), labels) == pytest.approx(sum(literal) / len(literal))


def test_the_surest_answers_count_first() -> None:
    sure = torch.tensor([0.9, 0.6, 0.8, 0.7], dtype=torch.float64)
    probabilities = torch.stack([sure, 1 - sure], dim=1)
    labels = torch.tensor([0, 1, 0, 1])
    found = [accuracy_at_coverage(probabilities, labels, share) for share in (0.1, 0.25, 0.5, 0.75, 1.0)]
    assert found == pytest.approx([1, 1, 1, 2 / 3, 1 / 2])
    with pytest.raises(ValueError, match="coverage is 0"):
        accuracy_at_coverage(probabilities, labels, 0)


def test_error_by_chance_is_that_of_labels_drawn_from_the_probabilities() -> None:
    """Planted truth: 200 sets of labels drawn from the softmax have that error on average, 1 in 20 more."""
    logits, _ = logits_of(7, images=80)
    shares, random = logits.softmax(1), torch.Generator().manual_seed(1)
    drawn = [torch.multinomial(shares, 1, generator=random).flatten() for _ in range(200)]
    errors = torch.tensor([expected_calibration_error(shares, labels) for labels in drawn])
    chance = error_by_chance(shares)
    assert chance.mean == pytest.approx(errors.mean().item(), rel=0.05)
    assert (errors > chance.high).double().mean().item() == pytest.approx(0.05, abs=0.04)
    assert chance.mean > 0.05  # with 80 images


def test_error_by_chance_falls_with_images_and_says_nothing_of_none() -> None:
    few, many = (error_by_chance(logits_of(8, images=count)[0].softmax(1)).mean for count in (100, 10_000))
    assert many < few / 5
    assert error_by_chance(torch.eye(3, dtype=torch.float64)).high == 0  # certain answers leave no chance
    assert math.isnan(error_by_chance(torch.zeros(0, 2)).mean)
    assert error_by_chance(torch.full((9, 2), 0.5)) == error_by_chance(torch.full((9, 2), 0.5))


@pytest.mark.parametrize("planted", [0.3, 1.0, 2.5, 9.0])
def test_a_planted_temperature_is_found(planted: float) -> None:
    """Labels are drawn at temperature 1, and the logits handed over are that many times as large."""
    logits, labels = logits_of(3, images=20000)
    found = fitted_temperature(planted * logits, labels)
    assert found == pytest.approx(planted, rel=0.03)
    assert expected_calibration_error(tempered(planted * logits, found), labels) < 0.015


def test_the_temperature_is_the_best_of_a_fine_grid() -> None:
    logits, labels = logits_of(4)

    def loss(heat: float) -> float:
        return torch.nn.functional.cross_entropy(3 * logits / heat, labels).item()

    grid = min((math.exp(step / 1000) for step in range(-3000, 3000)), key=loss)
    assert fitted_temperature(3 * logits, labels) == pytest.approx(grid, rel=1e-3)


def test_a_temperature_stays_within_bounds() -> None:
    """All right asks for the coldest, all wrong for the hottest; a smoothed truth for one between."""
    logits = torch.tensor([[4.0, 0.0], [0.0, 5.0], [6.0, 1.0]])
    labels = torch.tensor([0, 1, 0])
    assert fitted_temperature(logits, labels) == pytest.approx(COLDEST)
    assert fitted_temperature(logits, 1 - labels) == pytest.approx(HOTTEST)
    smooth = fitted_temperature(logits, labels, smoothing=0.2)
    assert tempered(logits.double(), smooth).amax(1).mean().item() == pytest.approx(0.8, abs=0.01)


def test_logits_that_say_nothing_keep_their_temperature() -> None:
    assert fitted_temperature(torch.zeros(5, 3), torch.tensor([0, 1, 2, 0, 1])) == 1.0


def test_huge_logits_do_not_break_the_fit() -> None:
    logits, labels = logits_of(5)
    assert fitted_temperature(1e4 * logits, labels) == pytest.approx(HOTTEST)
    assert math.isfinite(fitted_temperature(1e30 * logits, labels))


def test_tempering_keeps_the_order_and_lifts_to_the_floor() -> None:
    logits, _ = logits_of(6)
    for temperature, floor in ((0.2, 0.0), (3.0, 0.01), (0.01, 0.001)):
        shares = tempered(logits, temperature, floor)
        assert torch.allclose(shares.sum(1), torch.ones(len(shares), dtype=torch.float64))
        assert (shares >= floor - 1e-15).all()
        assert (shares.amax(1) <= 1 - 3 * floor + 1e-12).all()
        assert (shares.gather(1, logits.argmax(1, keepdim=True)).flatten() >= shares.amax(1)).all()
    assert torch.equal(tempered(logits, 1.0), logits.softmax(1))
    with pytest.raises(ValueError, match="temperature 0"):
        tempered(logits, 0)
    with pytest.raises(ValueError, match="floor"):
        tempered(logits, 1, 0.25)


@pytest.mark.parametrize("measure", [brier_score, expected_calibration_error, fitted_temperature])
def test_wrong_input_is_named(measure: object) -> None:
    assert callable(measure)
    with pytest.raises(ValueError, match=r"\(N, C\) and \(N,\)"):
        measure(torch.full((3, 2), 0.5), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="label of image 1 is 2"):
        measure(torch.full((2, 2), 0.5), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match="NaN"):
        measure(torch.full((1, 2), torch.nan), torch.tensor([0]))


def test_without_images_nothing_is_known() -> None:
    none, labels = torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)
    assert math.isnan(expected_calibration_error(none, labels))
    assert math.isnan(brier_score(none, labels))
    assert math.isnan(accuracy_at_coverage(none, labels, 0.5))
    with pytest.raises(ValueError, match="one image"):
        fitted_temperature(none, labels)
