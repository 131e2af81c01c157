"""Mosaics for a network: only images that it is sure of; maps that know the class, and maps that do not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dprotonet.data.base import Sample
from dprotonet.data.transforms import Normalise
from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import Case, Method, MethodMaps, method
from dprotonet.experiment.compare.mosaics import mosaics_of
from dprotonet.experiment.compare.run import Comparison
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.base import Passes
from dprotonet.metrics.measures import Protocol

SIZE = 16


class Colours(nn.Module):
    """Logits: how much there is of red, green, blue and grey; a black image leaves it in doubt."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(20.0))

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean(dim=(-2, -1))
        grey = mean.amin(dim=1, keepdim=True)
        return self.strength * torch.cat([mean - grey, 2 * grey], dim=1)


class Plain:
    """Images of one colour each: red, green, blue, grey, black, and so on."""

    classes = ("unknown",)
    fingerprint = "plain"

    def __init__(self, count: int, kinds: tuple[int, ...] = (0, 1, 2, 3, 4)) -> None:
        self.kinds = [kinds[index % len(kinds)] for index in range(count)]
        self.labels = [0] * count

    def name(self, index: int) -> str:
        return f"{index}.png"

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, index: int) -> Sample:
        image = torch.zeros(3, SIZE, SIZE, dtype=torch.uint8)
        kind = self.kinds[index]
        if kind < 3:
            image[kind] = 255
        elif kind == 3:
            image[:] = 200
        return Sample(image, 0, self.name(index))


@pytest.fixture
def classifier() -> Classifier:
    normalise = Normalise((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), channels=3)
    return Classifier("colours", Colours().eval(), ("red", "green", "blue", "grey"), SIZE, normalise)


def test_tiles_stand_for_what_the_network_is_sure_of(classifier: Classifier) -> None:
    data = Plain(40)
    mosaics = mosaics_of(classifier, data, None)
    assert len(mosaics) > 8
    assert tuple(mosaics.classes) == classifier.classes
    for question in mosaics.questions:
        for tile in question.tiles:
            assert data.kinds[tile.number] == tile.label  # never black, whose probability is a quarter


def test_a_larger_limit_has_the_questions_of_a_smaller_one(classifier: Classifier) -> None:
    few, more = (mosaics_of(classifier, Plain(60), limit) for limit in (3, 9))
    assert len(few) == 3
    assert more.questions[:3] == few.questions
    assert more.fingerprint == few.fingerprint


def test_too_few_sure_images_are_told(classifier: Classifier) -> None:
    with pytest.raises(UserError, match=r"4 images of 4 classes that .* 50 % at least.* 9 images"):
        mosaics_of(classifier, Plain(9, kinds=(0, 4)), None)


def test_a_map_of_the_class_is_told_from_a_map_of_everything(classifier: Classifier, tmp_path: Path) -> None:
    def own_colour(case: Case) -> MethodMaps:
        image, label = case.inputs[0], int(case.label)
        grey = image.amin(dim=0)
        raw = grey if label == 3 else image[label] - grey
        return MethodMaps(raw, raw, Passes(0, 0))

    mosaics = mosaics_of(classifier, Plain(40), 8)
    asked = [Method("own", own_colour), method("centre", classifier)]
    comparison = Comparison(classifier, mosaics, asked, tmp_path, protocol=Protocol(asked="of one tile"))
    assert not [step.failure for step in comparison.run() if step.failure]
    found = comparison.results().records
    for record in found["own"].values():
        assert record.values["energy"] == pytest.approx(1)
        assert record.values["pointing"] == 1
    for record in found["centre"].values():
        assert record.values["energy"] == pytest.approx(0.25, abs=0.01)
    assert comparison.plan()["protocol"]["class"] == "of one tile"
