"""Nothing here looks like what I know: where the threshold comes from, who keeps it, what it says."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.encoder.encoder import Encoder
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.prototypes.cleaning import clean
from dprotonet.experiment.runs.familiarity import (
    FILE,
    OF_PARTS,
    STATISTIC,
    Familiarity,
    is_familiar,
    known_distances,
    of_prototypes,
    warning_of,
)
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import PresentCosine
from dprotonet.network import DProtoNet


@pytest.fixture(scope="module")
def earlier(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an earlier version, which knows distances to prototypes only."""
    folder = tmp_path_factory.mktemp("earlier") / "run"
    shutil.copytree(run_folder, folder, ignore=shutil.ignore_patterns("checkpoint"))
    model = dp.load(folder)
    model.familiarity = None
    validation = build_splits(model.config.data).val
    model.measured_familiarity(validation).write(folder)
    return folder


@pytest.fixture
def model(earlier: Path) -> dp.Model:
    return dp.load(earlier)


@pytest.fixture
def copied(earlier: Path, tmp_path: Path) -> Path:
    shutil.copytree(earlier, tmp_path / "run")
    return tmp_path / "run"


def strange_image() -> torch.Tensor:
    return torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_limit_itself_is_familiar() -> None:
    assert [is_familiar(distance) for distance in (None, 0.0, 1.0, 1.0000001)] == [None, True, True, False]


def test_the_threshold_is_that_of_validation_images(model: dp.Model) -> None:
    """Twelve images are too few for 5 %: the farthest of them is the threshold, one in thirteen the share."""
    assert model.familiarity is not None
    validation = build_splits(model.config.data).val
    predictions = [model.predict(validation[index].image) for index in range(len(validation))]
    distances = [prediction.distance or 0 for prediction in predictions]
    assert model.familiarity.images == len(validation) == 12
    assert model.familiarity.share == pytest.approx(1 / 13)
    assert max(distances) == pytest.approx(1, rel=1e-4)
    again = model.measured_familiarity(validation)
    assert again.threshold == pytest.approx(model.familiarity.threshold, rel=0.01)


def test_distance_is_that_of_the_nearest_prototype(model: dp.Model) -> None:
    image = strange_image()
    prediction = model.predict(image)
    with torch.no_grad():
        distances = model.prototyped.evidence(model.inputs([image])).distances[0].tolist()
    assert model.familiarity is not None
    assert prediction.distance == pytest.approx(min(distances) ** 0.5 / model.familiarity.threshold, rel=1e-5)
    assert prediction.familiar == (prediction.distance <= 1)


def test_beyond_the_threshold_an_image_is_strange(copied: Path) -> None:
    """The same image under two thresholds, half and twice its distance."""
    content = json.loads((copied / FILE).read_text())
    far = (dp.load(copied).predict(strange_image()).distance or 0) * content["threshold"]
    for threshold, familiar in ((far / 2, False), (far * 2, True)):
        (copied / FILE).write_text(json.dumps({**content, "threshold": threshold}))
        prediction = dp.load(copied).predict(strange_image())
        assert prediction.familiar is familiar
        assert prediction.distance == pytest.approx(far / threshold)


def test_a_run_without_a_threshold_does_not_say(copied: Path) -> None:
    (copied / FILE).unlink()
    prediction = dp.load(copied).predict(strange_image())
    assert prediction.familiar is None
    assert prediction.distance is None


def test_it_goes_along_with_a_saved_model(model: dp.Model, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "copy")
    assert dp.load(tmp_path / "copy").familiarity == model.familiarity


def test_a_model_with_changed_prototypes_is_saved_without_it(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = dp.load(copied)
    with torch.no_grad():
        model.prototyped.prototypes.vectors[0] += 1
    model.save_pretrained(copied)
    assert not (copied / FILE).exists()
    assert dp.load(copied).familiarity is None
    assert not caplog.text


def test_a_threshold_of_other_prototypes_counts_as_none(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = json.loads((copied / FILE).read_text())
    (copied / FILE).write_text(json.dumps({**content, "prototypes": "0" * 32}))
    assert dp.load(copied).familiarity is None
    assert "other prototypes" in caplog.text


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"threshold": 1}', "null"],
)
def test_a_damaged_file(copied: Path, text: str) -> None:
    (copied / FILE).write_text(text)
    with pytest.raises(dp.UserError, match=r"familiarity.json is damaged"):
        dp.load(copied)


@pytest.mark.parametrize(
    "change", [{"threshold": 0}, {"threshold": "1"}, {"images": True}, {"statistic": "logit"}, {"odd": 1}]
)
def test_values_that_cannot_be(copied: Path, change: dict) -> None:
    content = json.loads((copied / FILE).read_text())
    (copied / FILE).write_text(json.dumps({**content, **change}))
    with pytest.raises(dp.UserError, match=r"familiarity.json is damaged"):
        dp.load(copied)


def test_measuring_leaves_the_network_as_it_was(network: dp.DProtoNet, val_views) -> None:
    network.train()
    network.encoder.backbone.eval()
    before = [module.training for module in network.modules()]
    distances = known_distances(network, val_views, batch=4)
    assert distances is not None
    assert [module.training for module in network.modules()] == before
    assert distances.shape == (len(val_views), 6)
    assert not distances.requires_grad
    network.eval()
    first = network.evidence(val_views[0, 0].inputs.unsqueeze(0)).distances[0]
    torch.testing.assert_close(distances[0], first.detach(), rtol=1e-4, atol=1e-4)


def test_known_images_on_prototypes_still_give_a_threshold(network: dp.DProtoNet) -> None:
    found = of_prototypes(torch.zeros(3, 6), network)
    assert found.threshold > 0
    assert found.distance(torch.tensor([[0.0, 1.0], [1.0, 1.0]])).gt(1).tolist() == [False, True]


def test_fewer_prototypes_get_a_limit_of_their_own(model: dp.Model, tmp_path: Path) -> None:
    splits = build_splits(model.config.data)
    cleaning = clean(model, {1: "dark"}, {"train": splits.train, "val": splits.val}, epochs=1)
    cleaning.save(tmp_path / "run")
    found, wanted = dp.load(tmp_path / "run").familiarity, cleaning.model.measured_familiarity(splits.val)
    assert found is not None
    assert found.prototypes == wanted.prototypes
    assert found.threshold == pytest.approx(wanted.threshold, rel=0.01)
    assert clean(model, {1: "dark"}, {"train": splits.train}, epochs=1).model.familiarity is None


def test_fewer_prototypes_keep_the_share_that_was_asked_for(model: dp.Model) -> None:
    splits = build_splits(model.config.data)
    asked = dp.load(model.folder or "")
    asked.familiarity = None
    asked.familiarity = asked.measured_familiarity(splits.val, share=0.3)
    found = clean(asked, {1: "dark"}, {"train": splits.train, "val": splits.val}, epochs=0).model.familiarity
    assert found is not None
    assert found.share == asked.familiarity.share == pytest.approx(3 / 13)


@pytest.mark.parametrize(("distance", "told"), [(None, False), (0.4, False), (1.0, False), (1.01, True)])
def test_the_warning_begins_beyond_the_limit(distance: float | None, told: bool) -> None:
    assert ("this image is unlike the training images" in warning_of(distance)) is told


@pytest.mark.parametrize(
    ("distance", "far"),
    [(1.17, "1.17 times as far as the limit"), (1.00004, "just beyond the limit"), (1.0051, "1.01 times")],
)
def test_the_warning_says_how_far(distance: float, far: str) -> None:
    assert f"({far}" in warning_of(distance)


def test_the_command_gives_an_old_run_its_features(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dp.load(copied).familiarity.statistic == STATISTIC
    assert main(["familiarity", str(copied), "--share", "0.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    stored = dp.load(copied).familiarity
    assert isinstance(stored, Familiarity)
    assert told == {"run": str(copied), **stored.facts()}
    assert stored.features is not None
    assert stored.share == pytest.approx(0.5, abs=0.1)
    assert dp.load(copied).predict(strange_image()).familiar is False
    assert main(["familiarity", str(copied)]) == 0
    assert "features of the training images" in capsys.readouterr().out


@pytest.mark.parametrize("share", ["0", "1.5", "nan"])
def test_the_command_refuses_an_impossible_share(copied: Path, share: str) -> None:
    assert main(["familiarity", str(copied), "--share", share]) == 2


def test_predict_says_it_in_plain_words(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((copied / FILE).read_text())
    (copied / FILE).write_text(json.dumps({**content, "threshold": content["threshold"] / 100}))
    path = tmp_path / "noise.png"
    Image.fromarray(strange_image().permute(1, 2, 0).numpy()).save(path)
    assert main(["predict", str(copied), str(path)]) == 0
    assert "this image is unlike the training images" in capsys.readouterr().out
    assert main(["predict", str(copied), str(path), "--json"]) == 0
    (prediction,) = json.loads(capsys.readouterr().out)["predictions"]
    assert prediction["familiar"] is False
    assert prediction["distance"] > 1


# ── where prototypes are parts ──


def network_of_parts() -> DProtoNet:
    """Two classes of three parts each."""
    part, owner = torch.arange(6) % 3, torch.arange(6) // 3
    prototypes = Prototypes(2, 3, 4, similarity=PresentCosine(), assignment=PartRegion(part))
    return DProtoNet(Encoder(nn.Identity(), nn.Identity(), nn.Identity()), prototypes, Head(owner))  # type: ignore[arg-type]


def test_with_parts_one_that_is_met_by_chance_makes_nothing_familiar() -> None:
    """The stranger has one part of a class and nothing else of it; the known ones a whole class each."""
    noise = 0.1 * torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    known = torch.cat([torch.full((40, 3), 0.5), torch.full((40, 3), 1.5)], dim=1) + noise
    stranger = torch.tensor([[0.5, 1.9, 1.9, 1.9, 1.9, 1.9]])
    found = of_prototypes(known, network_of_parts())
    assert found.statistic == OF_PARTS
    assert found.owner == (0, 0, 0, 1, 1, 1)
    assert float(found.distance(stranger)) > 1.2
    assert float((found.distance(known) > 1).double().mean()) <= 0.05
    nearest = Familiarity(float(known.amin(dim=1).sqrt().max()), 0.05, 40, "")
    assert float(nearest.distance(stranger)) <= 1  # as the nearest prototype alone would have it


def test_with_parts_an_image_of_the_right_whole_that_meets_no_part_is_strange_too() -> None:
    known = torch.full((40, 6), 1.8)
    known[:, 0] = torch.linspace(0.1, 0.2, 40)  # always one part that is certain
    found = of_prototypes(known, network_of_parts())
    assert float(found.distance(torch.tensor([[1.2, 1.2, 1.2, 1.8, 1.8, 1.8]]))) > 2


def test_what_is_kept_of_parts_is_read_again_and_checked(tmp_path: Path) -> None:
    found = of_prototypes(torch.rand(20, 6) + 0.1, network_of_parts())
    found.write(tmp_path)
    assert Familiarity.read(tmp_path) == found
    for damage in ({"owner": []}, {"owner": [0.5] * 6}, {"usual": [1.0]}, {"usual": [1.0, -1.0]}):
        (tmp_path / FILE).write_text(json.dumps({**found.facts(), **damage}), encoding="utf-8")
        with pytest.raises(dp.UserError, match="owner must have a class"):
            Familiarity.read(tmp_path)
