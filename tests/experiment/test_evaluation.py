"""The numbers of two classes: whose they are, whoever is asked for, and refusals before any work."""

from itertools import product

import pytest
import torch

from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.evaluation.evaluation import Evaluation
from dprotonet.experiment.evaluation.positive_class import positive_class
from dprotonet.training.evaluation import Predictions

CLASSES = ("disease", "normal")


def evaluation(logits: torch.Tensor, positive: str | None = None) -> Evaluation:
    labels = torch.tensor([0, 0, 0, 0, 1, 1])
    return Evaluation("test", CLASSES, Predictions(logits, labels), positive)


@pytest.fixture
def logits() -> torch.Tensor:
    """Of four images of disease three are found, of two normal ones one."""
    return torch.tensor([[3.0, 0.0], [2.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0]])


def literal_auroc(logits: torch.Tensor) -> float:
    """How many pairs of an image of disease and a normal one are in the right order."""
    lead = (logits[:, 0] - logits[:, 1]).tolist()
    pairs = [(ill > well) + 0.5 * (ill == well) for ill, well in product(lead[:4], lead[4:])]
    return sum(pairs) / len(pairs)


@pytest.mark.parametrize(
    ("asked", "positive", "found", "spared"),
    [
        (None, "disease", 0.75, 0.5),
        ("normal", "normal", 0.5, 0.75),
        ("disease", "disease", 0.75, 0.5),
    ],
)
def test_sensitivity_is_of_the_class_that_is_named(
    logits: torch.Tensor, asked: str | None, positive: str, found: float, spared: float
) -> None:
    summary = evaluation(logits, asked).summary()
    assert summary["positive"] == positive
    assert (summary["sensitivity"], summary["specificity"]) == (found, spared)
    assert summary["auroc"] == pytest.approx(literal_auroc(logits))


@pytest.mark.parametrize("asked", CLASSES)
def test_auroc_tells_images_apart_whose_probability_is_one(asked: str) -> None:
    sure = torch.tensor([[80.0, 0], [70, 0], [90, 0], [65, 0], [60, 0], [50, 0]])  # in the right order
    assert evaluation(sure, asked).summary()["auroc"] == 1


def test_a_positive_class_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="--positive ill: the classes are disease and normal"):
        positive_class(CLASSES, "ill")
    for classes in (("a", "b", "c"), ("a",)):
        assert positive_class(classes) is None
        with pytest.raises(UserError, match=f"is for two classes, the run has {len(classes)}"):
            positive_class(classes, "a")


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_are_not_counted_as_answers(logits: torch.Tensor, broken: float) -> None:
    logits[1, 0] = broken
    with pytest.raises(ComputationError, match=r"1 images \(test\) are not finite, first image 1"):
        evaluation(logits)
