"""The gallery against slow sorting of single predictions; a split with a planted mistake."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

import dprotonet as dp
from conftest import tiny_config
from dprotonet.data.base import Sample
from dprotonet.data.birds import Birds
from dprotonet.errors import UserError
from dprotonet.experiment.explaining.gallery import gallery

Bird = TypeVar("Bird", bound=Birds)


class Wrong(Birds):
    """Birds, one of them with a label that is not its own."""

    wrong: tuple[int, int]

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        return replace(sample, label=self.wrong[1]) if index == self.wrong[0] else sample


class Nothing(Birds):
    def __len__(self) -> int:
        return 0


def species(model: dp.Model, kind: type[Bird] = Birds) -> Bird:
    return kind(species=len(model.classes), per_species=9, split="test", size=tiny_config().data.image_size)


@pytest.fixture(scope="module")
def model(run_folder: Path) -> dp.Model:
    return dp.load(run_folder)


@pytest.fixture(scope="module")
def birds(model: dp.Model) -> Birds:
    return species(model)


def test_as_single_predictions_say(model: dp.Model, birds: Birds) -> None:
    heard = []
    found = gallery(model, birds, most=5, on_progress=lambda *step: heard.append(step))
    said = [model.predict(birds[index].image) for index in range(len(birds))]
    mistakes = [at for at, one in enumerate(said) if one.label != birds.labels[at]]
    assert (found.images, found.mistakes) == (len(birds), len(mistakes))
    assert mistakes
    order = sorted(mistakes, key=lambda at: -said[at].probability)[:5]
    assert [said[at].probability for at in order] == pytest.approx(
        [one.probability for one in found.wrong], rel=1e-4
    )
    assert all(one.predicted == said[one.index].label != one.label for one in found.wrong)
    least = sorted(one.probability for one in said)[:5]
    assert [one.probability for one in found.uncertain] == pytest.approx(least, rel=1e-4)
    assert [one.name for one in found.uncertain] == [birds.name(one.index) for one in found.uncertain]
    assert heard[-1] == (len(birds), len(birds))


def test_the_strangest_are_the_farthest(model: dp.Model, birds: Birds) -> None:
    known = model.familiarity
    try:
        limit = model.measured_familiarity(birds, share=0.2)
        assert limit.features is not None
        near = deepcopy(limit.features.spread)
        near.limits.mul_(0.5)  # so that some of these birds are beyond
        model.familiarity = replace(limit, features=replace(limit.features, spread=near))
        said = [model.predict(birds[index].image).distance for index in range(len(birds))]
        found = gallery(model, birds, most=len(birds))
        assert [one.distance for one in found.strange] == pytest.approx(sorted(said, reverse=True), rel=1e-4)
        assert found.strangers == sum(one > 1 for one in said) > 0
        model.familiarity = None
        blind = gallery(model, birds)
        assert (blind.strange, blind.strangers) == ((), None)
    finally:
        model.familiarity = known


def test_a_planted_mistake_is_found(model: dp.Model, birds: Birds) -> None:
    """The surest right answer with a wrong label is the surest mistake."""
    said = [model.predict(birds[index].image) for index in range(len(birds))]
    right = [at for at, one in enumerate(said) if one.label == birds.labels[at]]
    surest = max(right, key=lambda at: said[at].probability)
    planted = species(model, Wrong)
    planted.wrong = surest, (birds.labels[surest] + 1) % len(model.classes)
    before, after = gallery(model, birds), gallery(model, planted, most=len(birds))
    assert after.mistakes == before.mistakes + 1
    assert surest in [one.index for one in after.wrong]
    assert surest not in [one.index for one in before.wrong]


def test_an_empty_split_is_an_error(model: dp.Model) -> None:
    with pytest.raises(UserError, match="no images"):
        gallery(model, species(model, Nothing))
