"""Accuracy and its relatives against scikit-learn."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch import Tensor

from dprotonet.metrics.classification import (
    accuracy,
    auroc,
    balanced_accuracy,
    confusion_matrix,
    recall_per_class,
    sensitivity,
    specificity,
    wilson_interval,
)

CLASSES = 5


def answers(seed: int, *, missing: int | None = None) -> tuple[Tensor, Tensor]:
    """Labels and predictions of unbalanced classes, one of them without images if wanted."""
    random = np.random.default_rng(seed)
    labels = random.choice(CLASSES, 60, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    labels[labels == missing] = 0
    guesses = random.integers(0, CLASSES, 60)
    predictions = np.where(random.random(60) < 0.6, labels, guesses)
    return torch.from_numpy(labels), torch.from_numpy(predictions)


@pytest.mark.parametrize("missing", [None, 2, CLASSES - 1])
@pytest.mark.parametrize("seed", range(3))
def test_confusion_and_what_follows_from_it(seed: int, missing: int | None) -> None:
    labels, predictions = answers(seed, missing=missing)
    confusion = confusion_matrix(labels, predictions, CLASSES)
    expected = reference.confusion_matrix(labels, predictions, labels=range(CLASSES))
    assert confusion.tolist() == expected.tolist()
    assert accuracy(confusion) == pytest.approx(reference.accuracy_score(labels, predictions))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the predicted class that has no images
        balanced = reference.balanced_accuracy_score(labels, predictions)
    assert balanced_accuracy(confusion) == pytest.approx(balanced)


def test_recall_is_nan_for_a_class_without_images_only() -> None:
    labels, predictions = answers(0, missing=2)
    recall = recall_per_class(confusion_matrix(labels, predictions, CLASSES))
    expected = reference.recall_score(
        labels, predictions, labels=range(CLASSES), average=None, zero_division=np.nan
    )
    np.testing.assert_allclose(recall.numpy(), expected)
    assert recall.isnan().tolist() == [False, False, True, False, False]


def test_without_images_nothing_is_known() -> None:
    empty = confusion_matrix(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long), CLASSES)
    assert empty.tolist() == [[0] * CLASSES] * CLASSES
    assert math.isnan(accuracy(empty))
    assert math.isnan(balanced_accuracy(empty))


@pytest.mark.parametrize("levels", [2, 4, 10**6], ids=["two values", "many ties", "no ties"])
@pytest.mark.parametrize("seed", range(3))
def test_auroc_counts_ties_half(seed: int, levels: int) -> None:
    random = np.random.default_rng(seed)
    positive = random.random(50) < 0.3
    scores = np.floor((random.random(50) + 0.3 * positive) * levels).astype(np.float32)
    expected = reference.roc_auc_score(positive, scores)
    assert auroc(torch.from_numpy(scores), torch.from_numpy(positive)) == pytest.approx(expected)


def test_auroc_of_a_constant_score_is_a_half() -> None:
    assert auroc(torch.ones(4), torch.tensor([True, False, False, True])) == 0.5


def test_auroc_of_perfect_and_of_reversed_order() -> None:
    positive = torch.tensor([False, True, False, True])
    assert auroc(torch.tensor([0.1, 0.9, 0.2, 0.8]), positive) == 1.0
    assert auroc(torch.tensor([0.9, 0.1, 0.8, 0.2]), positive) == 0.0


@pytest.mark.parametrize("kind", [True, False])
def test_auroc_needs_both_kinds(kind: bool) -> None:
    assert math.isnan(auroc(torch.rand(3), torch.full((3,), kind)))


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64])
def test_auroc_takes_flags_and_integers(kind: torch.dtype) -> None:
    random = np.random.default_rng(0)
    positive, scores = random.random(300) < 0.4, random.random(300)
    expected = reference.roc_auc_score(positive, scores)
    found = auroc(torch.from_numpy(scores), torch.from_numpy(positive).to(kind))
    assert found == pytest.approx(expected, abs=1e-12)


def test_auroc_is_exact_where_one_kind_is_rare() -> None:
    random = np.random.default_rng(0)
    positive = np.arange(10_000) >= 10  # ranks in single precision were wrong by 3e-5 here
    scores = random.random(10_000) + 0.1 * positive
    expected = reference.roc_auc_score(positive, scores)
    assert auroc(torch.from_numpy(scores), torch.from_numpy(positive)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("scores", "positive", "message"),
    [
        ([0.1, math.nan], [True, False], "scores of image 1 contain NaN"),
        ([0.1, 0.2, 0.3], [0, 1, 2], "positive contains 2; it must be bool or the integers 0 and 1"),
        ([0.1, 0.2], [-1, 1], "positive contains -1"),
        ([0.1, 0.2], [0.0, 1.0], "positive is torch.float32"),
        ([0.1, 0.2], [True], r"scores \(2,\) against positive \(1,\)"),
    ],
)
def test_auroc_refuses_what_it_cannot_rank(scores: list[float], positive: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        auroc(torch.tensor(scores), torch.tensor(positive))


def test_confusion_of_small_integers_does_not_overflow() -> None:
    labels, predictions = (torch.arange(25, dtype=torch.uint8) for _ in range(2))  # 24 · 25 is above 255
    assert confusion_matrix(labels, predictions, 25).equal(torch.eye(25, dtype=torch.int64))
    assert confusion_matrix(labels[:2].bool(), predictions[:2], 2).equal(torch.eye(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([0, 0], [1, 2], "the prediction of image 1 is 2; the classes are 0 to 1"),
        ([0, 1], [0, -1], "the prediction of image 1 is -1"),
        ([2, 1], [0, 0], "the label of image 0 is 2"),
        ([0, 1], [0.0, 1.0], "the prediction of images is torch.float32; it must be an integer"),
        ([0, 1], [0], r"labels \(2,\) against predictions \(1,\)"),
    ],
)
def test_confusion_refuses_what_is_no_class(
    labels: list[int], predictions: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        confusion_matrix(torch.tensor(labels), torch.tensor(predictions), 2)


@pytest.mark.parametrize("positive", range(CLASSES))
@pytest.mark.parametrize("missing", [None, 2])
def test_sensitivity_and_specificity_of_one_class_against_the_rest(
    positive: int, missing: int | None
) -> None:
    labels, predictions = answers(1, missing=missing)
    confusion = confusion_matrix(labels, predictions, CLASSES)
    pair = (labels == positive).numpy(), (predictions == positive).numpy()
    recall = [reference.recall_score(*pair, pos_label=kind, zero_division=np.nan) for kind in (True, False)]
    found = sensitivity(confusion, positive), specificity(confusion, positive)
    assert found == pytest.approx(tuple(recall), nan_ok=True)
    assert math.isnan(found[0]) == (positive == missing)


def test_sensitivity_is_of_class_one_unless_another_is_named() -> None:
    confusion = torch.tensor([[8, 2], [1, 3]])
    assert sensitivity(confusion) == 0.75
    assert specificity(confusion) == 0.8
    assert sensitivity(confusion, 0) == specificity(confusion, 1)


def test_without_others_specificity_is_unknown_and_a_class_that_is_not_there_is_refused() -> None:
    assert math.isnan(specificity(torch.tensor([[0, 0], [1, 3]])))
    assert math.isnan(sensitivity(torch.zeros(2, 2, dtype=torch.long)))
    for wrong in (2, -1):
        with pytest.raises(ValueError, match="the classes are 0 to 1"):
            sensitivity(torch.eye(2), wrong)
        with pytest.raises(ValueError, match="the classes are 0 to 1"):
            specificity(torch.eye(2), wrong)


@pytest.mark.parametrize(
    ("right", "total", "low", "high"), [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)]
)
def test_wilson_interval_by_its_quadratic(right: int, total: int, low: float, high: float) -> None:
    """Its ends are the shares p for which the observed share lies just z standard errors away."""
    found = wilson_interval(right, total)
    assert found == pytest.approx((low, high), abs=1e-4)
    for p in found:
        assert (right / total - p) ** 2 == pytest.approx(1.959964**2 * p * (1 - p) / total, abs=1e-9)


def test_wilson_interval_of_nothing() -> None:
    assert all(math.isnan(end) for end in wilson_interval(0, 0))
