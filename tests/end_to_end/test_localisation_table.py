"""`[localisation]` in a plan: every finished run with every way of explaining it, in one table."""

import csv
import json
from pathlib import Path

import pytest
import torch

from dprotonet.cli.main import main
from dprotonet.data.base import Sample
from dprotonet.data.birds import Birds
from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.localisation import images_with_truth, passed_over
from dprotonet.experiment.benchmark.plan import Plan

PLAN = """
title = "Tiny"

[data]
species = 2
train_per_species = 3
val_per_species = 1
test_per_species = 3
image_size = 32

[network]
backbone = "timm:test_resnet:none"
dimension = 8
prototypes_per_class = 2

[training]
mode = "frozen"
epochs = 1
warm_epochs = 0
push_every = 1
last_layer_epochs = 0
augmentations = 0

[localisation]
methods = ["similarity", "centre", "gradcam"]
images = 2
steps = 2

[[row]]
name = "ProtoPNet"
network.network = "protopnet"

[[row]]
name = "black box"
network.network = "blackbox"

[[column]]
name = "birds"
data.data = "birds"
"""
LINES = [
    ("ProtoPNet", "similarity"),
    ("ProtoPNet", "centre"),
    ("ProtoPNet", "gradcam"),
    ("black box", "centre"),
    ("black box", "gradcam"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("located")
    (folder / "plan.toml").write_text(PLAN)
    words = [str(folder / "plan.toml"), "--out", str(folder / "out"), "--cache", str(folder / "cache")]
    assert main(["benchmark", *words]) == 0
    return folder


def test_a_line_for_every_network_and_method_that_it_has(done: Path) -> None:
    lines = json.loads((done / "out" / "results.json").read_text())["localisation"]
    assert [(line["row"], line["method"]) for line in lines] == LINES
    for line in lines:
        assert all(0 <= line["measures"][name]["mean"] <= 1 for name in ("DICE", "IOU", "PPV", "sensitivity"))
    centre = [line["measures"]["DICE"] for line in lines if line["method"] == "centre"]
    assert centre[0] == centre[1]  # the same images for both networks


def test_the_values_are_means_of_the_comparison_and_accuracy_of_the_run(done: Path) -> None:
    content = json.loads((done / "out" / "results.json").read_text())
    accuracy = {item["row"]: item["accuracy"] for item in content["results"]}
    for line in content["localisation"]:
        assert line["accuracy"] == pytest.approx(100 * accuracy[line["row"]])
    data = Birds(species=2, per_species=3, split="test", size=32)
    chosen = images_with_truth(data, 2)
    across = torch.stack([data[index].truth for index in chosen])  # type: ignore[misc]
    assert across.flatten(1).any(dim=1).all()
    found = sorted((done / "out" / "runs").glob("ProtoPNet*/localisation/done/gradcam/*.npz"))
    assert [int(path.stem) for path in found] == sorted(chosen)


def test_the_table_in_three_forms(done: Path) -> None:
    markdown, latex = ((done / "out" / f"localisation.{kind}").read_text() for kind in ("md", "tex"))
    assert "| network | explained by | accuracy ↑ | AD, 50 % of pixels kept ↓ | AI, 50" in markdown
    assert "| sensitivity of the maps, top 20 % against the truth ↑ | AD, soft ↓ | AI, soft ↑ |" in markdown
    for row, method in LINES:
        assert f"| {row} | {method} | " in markdown
        assert f"{row} & {method} & " in latex
    rows = list(csv.DictReader((done / "out" / "localisation.csv").open()))
    assert len(rows) == len(LINES) * 10
    assert {row["images"] for row in rows} == {"2"}


def test_what_was_measured_is_not_measured_again(
    done: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dprotonet.experiment.compare.run.measured", None)  # would fail if it were called
    words = [str(done / "plan.toml"), "--out", str(done / "out"), "--cache", str(done / "cache"), "--json"]
    assert main(["benchmark", *words]) == 0
    assert json.loads(capsys.readouterr().out)["failures"] == []


class Truths:
    """A split with given truths, of which two are empty and one unknown."""

    classes, fingerprint = ("a", "b"), "truths"

    def __init__(self, truths: list[bool | None]) -> None:
        self.truths, self.labels = truths, [0] * len(truths)

    def name(self, index: int) -> str:
        return str(index)

    def __len__(self) -> int:
        return len(self.truths)

    def __getitem__(self, index: int) -> Sample:
        known = self.truths[index]
        truth = None if known is None else torch.full((2, 2), known)
        return Sample(torch.zeros(3, 2, 2, dtype=torch.uint8), 0, str(index), truth=truth)


def test_only_images_with_truth_are_chosen_and_more_include_fewer() -> None:
    data = Truths([True, False, True, None, True, False, True])
    everything = images_with_truth(data, 99)
    assert sorted(everything) == [0, 2, 4, 6]
    assert images_with_truth(data, 2) == everything[:2]
    assert images_with_truth(Truths([None, False]), 5) == ()


def test_images_that_lack_truth_unlike_others_of_their_class_are_told() -> None:
    data = Truths([True, False, True, None, True, False, True])
    data.labels = [0, 0, 0, 1, 0, 0, 0]
    everything = images_with_truth(data, 99)
    assert sorted(passed_over(data, everything, 99)) == [1, 5]  # not 3: nothing of its class has truth
    for count in (1, 2, 3):
        chosen = images_with_truth(data, count)
        drawn = torch.randperm(7, generator=torch.Generator().manual_seed(0)).tolist()
        before = drawn[: drawn.index(chosen[-1])]
        assert set(passed_over(data, chosen, count)) == {index for index in before if index in (1, 5)}


def test_a_mask_that_cannot_be_read_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Truths):
        def __getitem__(self, index: int) -> Sample:
            if index == 1:
                raise UserError("masks/1.png is cut short")
            return super().__getitem__(index)

    data = Broken([True, True, True])
    assert sorted(images_with_truth(data, 9)) == [0, 2]
    assert "1: masks/1.png is cut short" in caplog.text


MISTAKES = [
    ('methods = ["similarity"', 'method = ["similarity"', "unknown key 'method' in [localisation]"),
    ('"centre"', '"center"', "unknown method 'center'"),
    ("images = 2", "images = 0", "localisation.images is 0"),
    ("steps = 2", 'top = "half"', "localisation.top is 'half'"),
    ('methods = ["similarity", "centre", "gradcam"]', 'methods = "mdm"', "must be a list"),
]


@pytest.mark.parametrize(("before", "after", "message"), MISTAKES, ids=[item[2] for item in MISTAKES])
def test_mistakes_are_found_before_the_work(
    before: str, after: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.replace(before, after))
    assert main(["benchmark", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_plan_without_it_has_none() -> None:
    import tomllib

    content = tomllib.loads(PLAN)
    del content["localisation"]
    assert Plan.of(content, where="plan").localisation is None
