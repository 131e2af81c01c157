"""Which images a run knows by their features: measured by training, stored safely."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dprotonet as dp
from dprotonet.encoder.level_averages import Levels
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.prototypes.what_if import without
from dprotonet.experiment.runs.familiarity import (
    FILE,
    OF_FEATURES,
    STATISTIC,
    Familiarity,
    familiarity_of,
    keep_familiarity,
)
from dprotonet.experiment.runs.known_features import FILE as TENSORS
from dprotonet.experiment.runs.known_features import MeasuredFeatures, enough, measured_features
from dprotonet.network import DProtoNet
from dprotonet.training.checkpoint import load_tensors, save_tensors

LEVELS = Levels((0,), (4, 8))


@pytest.fixture(scope="module")
def model(run_folder: Path) -> dp.Model:
    return dp.load(run_folder)


@pytest.fixture
def copied(run_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint"))
    return tmp_path / "run"


def noise(seed: int = 0) -> Tensor:
    return torch.randint(
        0, 256, (3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )


def averages(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 12, generator=torch.Generator().manual_seed(seed))


def to_prototypes(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 6, generator=torch.Generator().manual_seed(seed)) + 1


def measured(train: int = 100, val: int = 60) -> MeasuredFeatures:
    return measured_features(LEVELS, averages(train), averages(val, seed=1), learned=False)


def test_training_leaves_what_it_knows(model: dp.Model, run_folder: Path) -> None:
    """Twelve validation images are too few for the distance to prototypes, so features alone decide."""
    known = model.familiarity
    assert known is not None
    assert known.features is not None
    assert known.statistic == OF_FEATURES
    splits = build_splits(model.config.data)
    assert known.features.fitted == len(splits.train)
    assert known.images == len(splits.train) + len(splits.val)  # frozen: both
    assert (run_folder / TENSORS).stat().st_size < 2_000_000


def test_own_test_images_are_familiar_and_strangers_are_not(model: dp.Model) -> None:
    test = build_splits(model.config.data).test
    own = model.predict_many([test[index].image for index in range(len(test))])
    assert sum(item.familiar is False for item in own) <= 0.2 * len(own)
    flat = [torch.full((3, 64, 64), level, dtype=torch.uint8) for level in (0, 128, 255)]
    strangers = model.predict_many([*(noise(seed) for seed in range(5)), *flat])
    assert all(item.familiar is False for item in strangers)


def test_the_command_measures_what_training_measured(copied: Path) -> None:
    model = dp.load(copied)
    splits = build_splits(model.config.data)
    again = model.measured_familiarity(splits.val, train=splits.train)
    before = model.familiarity
    assert before is not None
    assert before.features is not None
    assert again.features is not None
    assert again.images == before.images
    limits = before.features.spread.limits
    torch.testing.assert_close(again.features.spread.limits, limits, rtol=0.02, atol=0.02)  # half precision


def test_a_saved_model_has_it_and_one_with_another_backbone_has_not(
    copied: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = dp.load(copied)
    model.save_pretrained(tmp_path / "copy")
    assert dp.load(tmp_path / "copy").familiarity == model.familiarity
    assert dp.load(tmp_path / "copy").predict(noise()).distance == model.predict(noise()).distance
    with torch.no_grad():
        next(model.network.encoder.backbone.parameters()).add_(0.1)
    model.save_pretrained(tmp_path / "other")
    assert not (tmp_path / "other" / FILE).exists()
    assert not (tmp_path / "other" / TENSORS).exists()


def test_features_stay_when_prototypes_go(model: dp.Model) -> None:
    smaller = without(model, [0])
    assert smaller.familiarity is not None
    assert smaller.predict(noise()).distance == pytest.approx(model.predict(noise()).distance)


@pytest.mark.parametrize("damage", ["missing", "truncated", "other", "not finite", "shape"])
def test_damaged_tensors(copied: Path, damage: str) -> None:
    path = copied / TENSORS
    tensors = load_tensors(path)
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:100])
    elif damage == "other":
        save_tensors(path, {**tensors, "limits": tensors["limits"] * 2})
    elif damage == "not finite":
        save_tensors(path, {**tensors, "limits": tensors["limits"] * torch.nan})
    else:
        save_tensors(path, {**tensors, "levels.0.mean": tensors["levels.0.mean"][:-1]})
    with pytest.raises(dp.UserError):
        dp.load(copied)


@pytest.mark.parametrize("change", [{"taken": [0]}, {"taken": None}, {"share": 2}, {"odd": 1}, {"unit": 1}])
def test_facts_that_cannot_be(copied: Path, change: dict) -> None:
    content = json.loads((copied / FILE).read_text())
    content["features"] |= change
    (copied / FILE).write_text(json.dumps(content))
    with pytest.raises(dp.UserError, match=r"familiarity.json is damaged"):
        dp.load(copied)


# ── the limits ──


def test_with_enough_validation_images_prototypes_have_a_say(network: DProtoNet) -> None:
    """Features that are usual hide no prototype far away, nor the reverse."""
    found = familiarity_of(to_prototypes(60), network, features=measured())
    assert found is not None
    assert found.features is not None
    assert found.statistic == STATISTIC
    assert found.share == found.features.share <= 0.05
    usual = torch.tensor([[0.8, 0.8]])
    near, far = torch.ones(1, 6), torch.full((1, 6), 100.0)
    assert float(found.distance(near, usual)) <= 1
    assert float(found.distance(near, torch.tensor([[3.0, 0.8]]))) == 3  # a first level, for itself
    assert float(found.distance(near, torch.tensor([[0.8, 9.0]]))) > 1  # the last one, beside prototypes
    assert float(found.distance(far, usual)) > 1
    beyond = torch.full((1, 6), (1.01 * found.threshold) ** 2)  # what features cannot know, such as a species
    assert float(found.distance(beyond, torch.tensor([[0.1, 0.1]]))) == pytest.approx(1.01)


def test_what_is_joined_keeps_its_share_on_images_never_seen(network: DProtoNet) -> None:
    shares = []
    for seed in range(20):
        features = measured_features(LEVELS, averages(300), averages(80, seed=seed + 1), learned=True)
        found = familiarity_of(to_prototypes(80, seed), network, features=features)
        assert found is not None
        assert found.features is not None
        new = found.features.strangeness(averages(200, seed=seed + 100))
        shares.append(float((found.distance(to_prototypes(200, seed + 500), new) > 1).double().mean()))
    assert sum(shares) / len(shares) == pytest.approx(found.share, abs=0.015)


def test_joined_limits_are_read_again_and_checked(network: DProtoNet, copied: Path) -> None:
    known = dp.load(copied).familiarity
    assert known is not None
    assert known.joined == ()
    found = replace(known, joined=(0.25, 0.8))
    found.write(copied)
    assert Familiarity.read(copied) == found
    content = json.loads((copied / FILE).read_text())
    for damage in ([0.25], [1.5, 0.8], [0.25, 0.0], ["0.25", 0.8], 3):
        (copied / FILE).write_text(json.dumps({**content, "joined": damage}))
        with pytest.raises(dp.UserError, match=r"familiarity.json is damaged"):
            dp.load(copied)


def test_other_prototypes_are_joined_with_the_same_features(network: DProtoNet) -> None:
    """Pruning moves all known images farther away; none of them may become strange by that."""
    features, before = measured(), to_prototypes(60)
    found = familiarity_of(before, network, features=features)
    assert found is not None
    assert found.features is not None
    farther = before * 4
    again = found.remeasured(farther, network, share=0.05, levels=features.val)
    assert again.threshold == pytest.approx(2 * found.threshold, rel=1e-5)  # of squared distances the root
    ratios = features.val / found.features.spread.limits
    torch.testing.assert_close(again.distance(farther, ratios), found.distance(before, ratios))
    alone = found.remeasured(farther, network, share=0.05)
    assert alone.statistic == OF_FEATURES


def test_a_run_of_an_earlier_version_says_what_it_said(copied: Path) -> None:
    """It took averages as they are, and did not say so; each of its measures counts for itself."""
    content = json.loads((copied / FILE).read_text())
    del content["features"]["unit"], content["joined"]
    (copied / FILE).write_text(json.dumps(content))
    features = dp.load(copied).familiarity.features
    assert features.unit is features.spread.unit is False
    asked = torch.rand(3, sum(features.spread.widths))
    wanted = [
        float(level(part) / limit)
        for row in asked
        for level, part, limit in zip(
            features.spread.levels,
            row.unsqueeze(0).split(features.spread.widths, dim=1),
            features.spread.limits,
            strict=True,
        )
    ]
    assert features.strangeness(asked).flatten().tolist() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("images", "by_prototypes"), [(38, False), (39, True)])
def test_from_few_images_nobody_knows_how_far_prototypes_may_be(
    network: DProtoNet, images: int, by_prototypes: bool
) -> None:
    assert enough(images) is by_prototypes
    found = familiarity_of(to_prototypes(images), network, features=measured(val=images))
    assert found is not None
    assert (found.statistic == STATISTIC) is by_prototypes


def test_a_backbone_that_learned_is_judged_by_validation_images_where_there_are_enough() -> None:
    """Its training images are nearer than any others will be."""
    train, val = averages(100), averages(60, seed=1)
    learned = measured_features(LEVELS, train, val, learned=True)
    assert len(learned.distances) == 60
    assert len(measured_features(LEVELS, train, val[:20], learned=True).distances) == 120
    assert len(measured_features(LEVELS, train, val, learned=False).distances) == 160


def test_a_run_without_anything_known_writes_nothing(network: DProtoNet, tmp_path: Path) -> None:
    assert familiarity_of(None, network) is None
    keep_familiarity(tmp_path, None, network)
    assert list(tmp_path.iterdir()) == []


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    content = {"threshold": 1.5, "share": 0.05, "images": 40, "prototypes": "0" * 32}
    (tmp_path / FILE).write_text(json.dumps(content))
    found = Familiarity.read(tmp_path)
    assert found == Familiarity(1.5, 0.05, 40, "0" * 32)
    assert found.features is None
