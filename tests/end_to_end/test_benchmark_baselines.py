"""Rows of a plan that are baselines: fitted to the features that the networks beside them learn from."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dprotonet.cli.main import main
from dprotonet.experiment.benchmark.files import save_benchmark
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.benchmark.run import Benchmark
from dprotonet.experiment.evaluation import baseline

PLAN = """
title = "Tiny"
seeds = [0, 1]
measures = ["accuracy", "balanced_accuracy"]

[data]
data = "birds"
species = 2
train_per_species = 4
val_per_species = 2
test_per_species = 3
image_size = 32

[network]
backbone = "timm:test_resnet:none"
dimension = 8
masks = 5
prototypes_per_class = 2

[training]
mode = "frozen"
epochs = 1
push_every = 1
last_layer_epochs = 1
augmentations = 1

[[row]]
name = "linear probe"
baseline = "probe"

[[row]]
name = "LDA"
baseline = "discriminant"

[[row]]
name = "DProtoNet"

[[column]]
name = "birds"
"""
ROWS = ["linear probe", "LDA", "DProtoNet", "DProtoNet"]  # of two seeds


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "tiny.toml"
    path.write_text(PLAN)
    return path


def words(plan: Path) -> list[str]:
    return ["benchmark", str(plan), "--out", str(plan.parent / "out"), "--cache", str(plan.parent / "cache")]


@pytest.fixture(scope="module")
def done(plan: Path) -> Path:
    assert main(words(plan)) == 0
    return plan.parent / "out"


def test_baselines_are_results_like_others(done: Path) -> None:
    content = json.loads((done / "results.json").read_text())
    assert content["finished"] == content["runs"] == len(ROWS)
    assert [item["row"] for item in content["results"]] == ROWS
    for name, item in zip(("probe", "discriminant"), content["results"], strict=False):
        assert (item["baseline"], item["seed"]) == (name, 0)
        assert (item["split"], item["images"]) == ("test", 6)
        assert item["push changes"] == []
        assert item["config"]["network"]["levels"] == 1
        assert 0 <= item["val_accuracy"] <= 1
    assert content["results"][1]["strength"] in (0.3, 0.5, 0.7)
    assert "baseline" not in content["results"][2]


def test_every_form_of_the_table_has_them(done: Path) -> None:
    results = json.loads((done / "results.json").read_text())["results"]
    markdown, latex = (done / "table.md").read_text(), (done / "table.tex").read_text()
    rows = list(csv.DictReader((done / "table.csv").open()))
    for item in results[:2]:
        name, accuracy = item["row"], item["accuracy"]
        numbers = [f"{100 * item[measure]:.1f}" for measure in ("accuracy", "balanced_accuracy")]
        assert f"| {name} | {numbers[0]} | {numbers[1]} | – | – |" in markdown  # one value, no epochs
        assert f"{name} & {numbers[0]} & {numbers[1]} & – & –" in latex
        (row,) = [row for row in rows if (row["row"], row["measure"]) == (name, "accuracy")]
        assert float(row["mean"]) == pytest.approx(accuracy, abs=1e-5)
        assert row["seeds"] == "1"
        assert f"- {name}:" not in markdown  # what pushes did
    assert "- DProtoNet:" in markdown
    assert "(linear probe, LDA) draw nothing" in markdown


def test_they_need_no_features_of_their_own(plan: Path, done: Path, tmp_path: Path) -> None:
    """Of three splits and of two seeds, whose backbones differ because they have random weights."""
    maps = list((done.parent / "cache").glob("*.npy"))
    assert len(maps) == 6
    assert all("pooled" in np.load(path, mmap_mode="r").dtype.names for path in maps)
    before = PLAN.partition('[[row]]\nname = "DProtoNet"')[0] + '[[column]]\nname = "birds"\n'
    (tmp_path / "plan.toml").write_text(before)
    found = Benchmark(Plan.read(tmp_path / "plan.toml"), tmp_path / "out", cache=tmp_path / "cache")
    assert [step.failure for step in found.run() if step.failure] == []
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 3
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    save_benchmark(found)
    assert "push" not in (tmp_path / "out" / "table.md").read_text()  # there was none


def test_what_is_finished_is_not_fitted_again(
    plan: Path, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("fitted again")

    monkeypatch.setattr(baseline, "BASELINES", dict.fromkeys(baseline.BASELINES, refuse))
    assert main(words(plan)) == 0
    (done / "runs" / "LDA--birds--seed0" / "result.json").unlink()
    assert main(words(plan)) == 1
    monkeypatch.undo()
    assert main(words(plan)) == 0  # goes on with what is missing


@pytest.mark.parametrize("other", ['baseline = "discriminant"', 'network.network = "blackbox"'])
def test_a_result_of_another_baseline_is_not_taken_for_this_one(
    other: str, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.toml").write_text(PLAN.replace('baseline = "probe"', other))
    assert main(["benchmark", str(tmp_path / "other.toml"), "--out", str(done)]) == 2
    assert "another" in capsys.readouterr().err


def test_a_network_that_was_begun_is_left_alone(plan: Path, tmp_path: Path) -> None:
    found = Plan.read(plan)
    benchmark = Benchmark(replace(found, cells=found.cells[:1]), tmp_path / "out", cache=tmp_path / "cache")
    place = benchmark.place(found.cells[0].runs[0])
    place.mkdir(parents=True)
    (place / "config.toml").touch()
    (step,) = benchmark.run()
    assert step.failure is not None
    assert "is of a network" in step.failure.reason
    assert not (place / "result.json").exists()


def test_a_baseline_among_shared_runs_has_a_folder_of_its_own(plan: Path, tmp_path: Path) -> None:
    found = Benchmark(Plan.read(plan), tmp_path, runs=tmp_path / "runs")
    names = [found.place(cell.runs[0]).name.split("-")[0] for cell in found.plan.cells]
    assert names == ["probe", "discriminant", "dprotonet", "dprotonet"]


def test_folds_of_a_baseline_are_pooled(tmp_path: Path) -> None:
    text = PLAN.replace("seeds = [0, 1]", "seeds = [0]\nfolds = 2").replace(
        '"balanced_accuracy"]', '"accuracy_at_the_end"]'
    )
    (tmp_path / "plan.toml").write_text(text)
    out = tmp_path / "out"
    command = [
        "benchmark",
        str(tmp_path / "plan.toml"),
        "--out",
        str(out),
        "--cache",
        str(tmp_path / "cache"),
    ]
    assert main(command) == 0
    results = json.loads((out / "results.json").read_text())["results"]
    for item in results[:2]:
        assert (item["split"], item["images"]) == ("2 folds", 12)  # training and validation, no test images
        assert item["accuracy_at_the_end"] is None
        assert item["baseline"] in ("probe", "discriminant")
    assert f"| LDA | {100 * results[1]['accuracy']:.1f} | – |" in (out / "table.md").read_text()


def test_levels_and_recipes_of_the_plan_do_not_reach_a_baseline() -> None:
    content: dict[str, Any] = {
        "recipe": "parts",
        "training": {"mode": "frozen", "augmentations": 3},
        "row": [{"name": "parts"}, {"name": "probe", "baseline": "probe"}],
        "column": [{"name": "birds", "data": {"data": "birds"}}],
    }
    parts, probe = Plan.of(content, where="plan").cells
    assert (parts.config.network.levels, probe.config.network.levels) == (2, 1)
    assert probe.config.training.augmentations == 3


MISTAKES = [
    ('baseline = "probe"', 'baseline = "prob"', "unknown baseline 'prob'; known: probe, discriminant"),
    ('baseline = "probe"', "baseline = 3", "unknown baseline 3; known: probe, discriminant"),
    ('baseline = "probe"', 'baseline = "probe"\nrecipe = "parts"', "has no use for recipe"),
    ('baseline = "probe"', 'baseline = "probe"\nnetwork.masks = 3', "has no use for network.masks"),
    ('name = "birds"', 'name = "birds"\nbaseline = "probe"', "unknown key 'baseline' in a [[column]]"),
    (
        "[[column]]",
        '[[localisation.line]]\nname = "x"\nrow = "LDA"\nmethod = "gradcam"\n[[column]]',
        "the plan has no row 'LDA'; its rows are DProtoNet",
    ),
    ("[[column]]", '[figures]\nrow = "LDA"\nregions = 1\n[[column]]', "rows with prototypes: DProtoNet"),
    (
        'name = "DProtoNet"',
        'name = "x"\nbaseline = "probe"\n[localisation]\nimages = 1',
        "needs a row with a network",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[message for *_, message in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PLAN.count(old) == 1
    (tmp_path / "plan.toml").write_text(PLAN.replace(old, new))
    assert main(["benchmark", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()
