"""Facts of prototypes: literal loops over images and prototypes, and what is kept in the run folder."""

import json
import logging
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import Remembered

import dprotonet as dp
from dprotonet.data.birds import Birds
from dprotonet.errors import ComputationError
from dprotonet.experiment.prototypes import facts as module
from dprotonet.experiment.prototypes.facts import (
    FILE,
    PrototypeFacts,
    kept_facts,
    prototype_facts,
    stored_facts,
)


@pytest.fixture(scope="module")
def train() -> Remembered:
    return Remembered(Birds(species=4, per_species=6, split="train", seed=0, size=64))


@pytest.fixture(scope="module")
def few() -> Remembered:
    return Remembered(Birds(species=4, per_species=1, split="train", seed=0, size=64))


@pytest.fixture(scope="module")
def model(run_folder: Path) -> dp.Model:
    """The tiny run with a head that says different things, some of them nothing."""
    loaded = dp.load(run_folder)
    with torch.no_grad():
        vectors, weight = loaded.prototyped.prototypes.vectors, loaded.network.head.weight
        vectors[5] = vectors[4]
        weight += torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
        weight[2] = -weight[2].abs()  # nothing speaks for this class
    return loaded


@pytest.fixture(scope="module")
def facts(model: dp.Model, train: Remembered) -> tuple[PrototypeFacts, ...]:
    return prototype_facts(model, train, nearest=5)


@pytest.fixture
def own(run_folder: Path, tmp_path: Path) -> dp.Model:
    """A model with a run folder that a test may write to."""
    return dp.load(shutil.copytree(run_folder, tmp_path / "own"))


@torch.no_grad()
def literal_distances(model: dp.Model, train: Remembered) -> list[list[float]]:
    """Of every image, of every prototype: the smallest squared distance to any region, by loops."""
    vectors = model.prototyped.prototypes.vectors.double()
    rows = []
    for number in range(len(train)):
        regions = model.prototyped.encoder(model.inputs([train[number].image]))[0].double()
        rows.append([min(float(((region - vector) ** 2).sum()) for region in regions) for vector in vectors])
    return rows


def test_facts_are_those_of_the_loops(
    model: dp.Model, train: Remembered, facts: tuple[PrototypeFacts, ...]
) -> None:
    distances = literal_distances(model, train)
    weight = model.network.head.weight.detach().double()
    scores = [[math.log((s + 1) / (s + 1e-12)) for s in row] for row in distances]
    fires = [0] * len(facts)
    for row in scores:
        logits = [sum(float(w) * g for w, g in zip(weights, row, strict=True)) for weights in weight]
        predicted = logits.index(max(logits))
        said = [float(weight[predicted, number]) * row[number] for number in range(len(facts))]
        if max(said) > 0:
            fires[said.index(max(said))] += 1
    assert len(facts) == 8
    assert 0 < sum(fires) <= len(train)
    for number, item in enumerate(facts):
        order = sorted(range(len(train)), key=lambda image: distances[image][number])[:5]
        assert (item.prototype, item.class_name) == (number, model.prototypes[number].class_name)
        assert item.label == model.classes.index(item.class_name) == number // 2
        assert item.weight == pytest.approx(float(weight[number // 2, number]))
        assert item.purity == pytest.approx(sum(train.labels[i] == item.label for i in order) / 5)
        assert item.fires == fires[number]
        assert [near.index for near in item.nearest] == order
        for near in item.nearest:
            assert (near.name, near.label) == (train.name(near.index), train.labels[near.index])
            assert near.distance == pytest.approx(distances[near.index][number], rel=1e-3)
            assert near.similarity == pytest.approx(scores[near.index][number], rel=1e-3)


def test_twins_are_told_on_both_sides(facts: tuple[PrototypeFacts, ...]) -> None:
    assert (facts[4].duplicates, facts[5].duplicates) == ((5,), (4,))


def test_a_network_that_is_against_everything_fires_nothing(model: dp.Model, train: Remembered) -> None:
    before = model.network.head.weight.detach().clone()
    try:
        model.network.head.weight.data = -before.abs()
        assert sum(item.fires for item in prototype_facts(model, train)) == 0
    finally:
        model.network.head.weight.data = before


def test_more_nearest_images_than_there_are(model: dp.Model, train: Remembered) -> None:
    steps: list[tuple[int, int]] = []
    found = prototype_facts(model, train, nearest=99, on_progress=lambda *step: steps.append(step))
    assert {item.among for item in found} == {6}  # as many as each class has
    for item in found:
        assert item.purity == sum(near.label == item.label for near in item.nearest[:6]) / 6
    assert {len(item.nearest) for item in found} == {len(train)}
    assert steps[-1] == (24, 24)


def test_a_small_class_can_be_pure(model: dp.Model, train: Remembered) -> None:
    """Two images of each class: no prototype could have more of them among any number of nearest ones."""
    small = Remembered(Birds(species=4, per_species=2, split="train", seed=0, size=64))
    for number, item in enumerate(prototype_facts(model, small, nearest=5)):
        distances = [row[number] for row in literal_distances(model, small)]
        first, second = sorted(range(len(small)), key=lambda image: distances[image])[:2]
        own = [small.labels[image] == item.label for image in (first, second)]
        assert (item.among, item.purity) == (2, sum(own) / 2)
        assert len(item.nearest) == 5


def test_json_there_and_back(facts: tuple[PrototypeFacts, ...]) -> None:
    for item in facts:
        assert PrototypeFacts.from_json(json.loads(json.dumps(item.to_json()))) == item


# ── keeping ──────────────────────────────────────────────────────────────────────────────────────────


def test_facts_are_made_once_and_read_again(
    own: dp.Model, few: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own.folder is not None
    made = stored_facts(own, few)
    assert made == prototype_facts(own, few)
    monkeypatch.setattr(module, "prototype_facts", lambda *_, **__: pytest.fail("made once more"))
    monkeypatch.setattr(module, "splits_of_run", lambda *_: pytest.fail("the data is not needed"))
    assert stored_facts(own, few) == stored_facts(own) == stored_facts(dp.load(own.folder)) == made
    assert not list(own.folder.glob("*.tmp"))


def test_other_weights_data_or_number_make_them_anew(own: dp.Model, few: Remembered) -> None:
    stored_facts(own, few, nearest=2)
    assert len(stored_facts(own, few, nearest=3)[0].nearest) == 3
    other = Remembered(Birds(species=4, per_species=1, split="train", seed=1, size=64))
    assert stored_facts(own, other, nearest=3) == prototype_facts(own, other, nearest=3)
    with torch.no_grad():
        own.network.head.weight.mul_(2)
    for data in (other, None):  # the second time they are there again
        changed = stored_facts(own, data, nearest=3)[0]
        assert changed.weight == pytest.approx(own.network.head.weight[0, 0].item())


def test_without_data_the_runs_own_is_used(own: dp.Model, train: Remembered) -> None:
    assert stored_facts(own) == prototype_facts(own, train)


def test_facts_of_an_older_version_are_made_anew(own: dp.Model, few: Remembered) -> None:
    """Their purity was another: the share of all nearest images, however few the class has."""
    assert own.folder is not None
    made, path = stored_facts(own, few), own.folder / FILE
    older = [{key: item[key] for key in item if key != "among"} for item in (one.to_json() for one in made)]
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1, "prototypes": older}))
    assert kept_facts(own) is None
    assert stored_facts(own, few) == made


HARMS = {
    "cut short": lambda text: text[:-40],
    "not an object": lambda text: "[]",
    "of another run": lambda text: text.replace('"prototype": 3', '"prototype": 4'),
    "not a number": lambda text: text.replace('"purity": ', '"purity": NaN, "was": ', 1),
    "no purity": lambda text: text.replace('"purity"', '"impurity"'),
    "words for numbers": lambda text: text.replace('"fires": ', '"fires": "', 1).replace(",", '",', 1),
    "infinite": lambda text: text.replace('"weight": ', '"weight": Infinity, "_": ', 1),
    "nothing near": lambda text: json.dumps(
        {
            **json.loads(text),
            "prototypes": [{**item, "nearest": []} for item in json.loads(text)["prototypes"]],
        }
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_file_is_made_anew(
    harm: str, own: dp.Model, few: Remembered, caplog: pytest.LogCaptureFixture
) -> None:
    assert own.folder is not None
    made, path = stored_facts(own, few), own.folder / FILE
    whole = path.read_text()
    path.write_text(HARMS[harm](whole))
    assert path.read_text() != whole
    with caplog.at_level(logging.WARNING):
        assert stored_facts(own, few) == made
    assert "is damaged" in caplog.text
    assert path.read_text() == whole


def test_a_folder_that_cannot_be_written_to(
    own: dp.Model, few: Remembered, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(module, "write_text", refuse)
    assert stored_facts(own, few) == prototype_facts(own, few)
    assert "cannot be written (Permission denied)" in caplog.text


def test_a_model_without_a_folder(own: dp.Model, few: Remembered) -> None:
    own.folder = None
    assert stored_facts(own, few) == prototype_facts(own, few)


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────


def test_data_that_is_gone_is_named(own: dp.Model, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    own.config = replace(own.config, data=replace(own.config.data, data=f"folder:{gone}"))
    with pytest.raises(dp.UserError, match=f"the run's data, folder:{gone}, cannot be read.*does not exist"):
        stored_facts(own)


def test_other_classes_and_no_images_are_refused(model: dp.Model, train: Remembered) -> None:
    with pytest.raises(dp.UserError, match="other classes"):
        prototype_facts(model, Birds(species=6, per_species=1, split="train", size=64))
    with pytest.raises(dp.UserError, match="other classes"):
        stored_facts(model, Birds(species=6, per_species=1, split="train", size=64))
    with pytest.raises(dp.UserError, match="nearest is 0"):
        prototype_facts(model, train, nearest=0)
    nobody = Remembered(Birds(species=4, per_species=1, split="train", size=64))
    nobody.samples = []
    with pytest.raises(dp.UserError, match="no images"):
        prototype_facts(model, nobody)


def test_weights_that_are_no_numbers(own: dp.Model, train: Remembered) -> None:
    with torch.no_grad():
        own.prototyped.prototypes.vectors[3, 0] = math.nan
    with pytest.raises(ComputationError, match="not finite"):
        prototype_facts(own, train)
