"""`dprotonet benchmark` as a user types it: a table of runs that goes on, and one failed run among many."""

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.experiment.benchmark import run as running
from dprotonet.experiment.benchmark.files import save_benchmark
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.settings.config_check import check_config

CONFIGS = Path(__file__).parents[2] / "configs"
PLAN = """
title = "Tiny"
seeds = [0, 1]
measures = ["accuracy", "balanced_accuracy"]

[data]
species = 2
train_per_species = 4
val_per_species = 2
test_per_species = 3
image_size = 32

[network]
backbone = "timm:test_resnet:none"
dimension = 8
masks = 5

[training]
mode = "frozen"
epochs = 2
warm_epochs = 1
push_every = 1
last_layer_epochs = 1
push_images = 2
augmentations = 1

[[row]]
name = "two prototypes"
network.prototypes_per_class = 2

[[row]]
name = "too many"
network.prototypes_per_class = 9

[[column]]
name = "birds"
data.data = "birds"
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "tiny.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def done(plan: Path) -> Path:
    """A finished benchmark; half of its runs cannot be trained."""
    out = plan.parent / "out"
    words = ["benchmark", str(plan), "--out", str(out), "--cache", str(plan.parent / "cache")]
    assert main(words) == 1
    return out


def test_a_failed_run_is_told_and_the_others_go_on(done: Path) -> None:
    content = json.loads((done / "results.json").read_text())
    assert (content["finished"], content["runs"]) == (2, 4)
    assert [(item["row"], item["seed"]) for item in content["results"]] == [
        ("two prototypes", 0),
        ("two prototypes", 1),
    ]
    for item in content["results"]:
        assert 0 <= item["accuracy"] <= 1
        assert len(item["push changes"]) == 2
        assert item["config"]["training"]["seed"] == item["seed"]


def test_the_table_has_means_deviations_and_gaps(done: Path) -> None:
    results = json.loads((done / "results.json").read_text())["results"]
    mean = 100 * sum(item["accuracy"] for item in results) / 2
    markdown, latex = (done / "table.md").read_text(), (done / "table.tex").read_text()
    assert f"| two prototypes | {mean:.1f} ± " in markdown
    assert "| too many | – | – |" in markdown
    assert "- two prototypes: " in markdown  # what pushes did
    assert rf"two prototypes & {mean:.1f} $\pm$ " in latex
    rows = list(csv.DictReader((done / "table.csv").open()))
    assert [(row["measure"], row["seeds"]) for row in rows if row["seeds"]] == [
        ("accuracy", "2"),
        ("balanced_accuracy", "2"),
        ("accuracy", "0"),
        ("balanced_accuracy", "0"),
    ]
    assert 100 * float(rows[0]["mean"]) == pytest.approx(mean, abs=1e-3)
    assert "epochs | kept epoch | steps | seconds | stopped by |" in markdown
    (line,) = [line for line in markdown.splitlines() if line.startswith("| two prototypes |")]
    seconds = sum(item["seconds"] for item in results) / 2
    kept = sum(item["kept epoch"] for item in results) / 2
    length = f"{results[0]['epochs']} | {kept:.0f} | {results[0]['steps']} | {seconds:.0f}"
    assert line.endswith(f"| {length} | all epochs done |")
    assert "all epochs done" in latex
    said = {row["measure"]: row["mean"] for row in rows if row["row"] == "two prototypes"}
    assert said["stopped by"] == "all epochs done"
    assert float(said["seconds"]) == pytest.approx(seconds, rel=1e-4)
    assert Image.open(done / "curves-1.png").width > 600


def test_a_run_that_lost_patience_says_so(tmp_path: Path) -> None:
    """Of 40 epochs few are taken: with two validation images a class accuracy soon rises no more."""
    text = PLAN.replace("epochs = 2\n", "epochs = 40\npatience = 1\n", 1).replace("[0, 1]", "[0]")
    text = text.replace(
        'name = "too many"\nnetwork.prototypes_per_class = 9', 'name = "probe"\nbaseline = "probe"'
    )
    plan = tmp_path / "patience.toml"
    plan.write_text(text, encoding="utf-8")
    assert main(["benchmark", str(plan), "--out", str(tmp_path / "out"), "--cache", str(tmp_path)]) == 0
    network, probe = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert network["stopped by"] == ["patience"]
    assert network["kept epoch"] <= network["epochs"] < 40
    assert (probe["stopped by"], probe["kept epoch"]) == ([], None)
    rounds = [
        json.loads(line)
        for line in next((tmp_path / "out").rglob("metrics.jsonl")).read_text().splitlines()
        if '"RoundDone"' in line
    ]
    assert rounds[-1]["stop"]
    assert [item["epoch"] for item in rounds if item["kept"]][-1] == network["kept epoch"]


def test_what_is_finished_is_not_trained_again(
    plan: Path, done: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = []
    real = running.Trainer

    def counted(config: Any, place: Path, **settings: Any) -> Any:
        trained.append(place.name)
        return real(config, place, **settings)

    monkeypatch.setattr(running, "Trainer", counted)
    cache = str(plan.parent / "cache")
    assert main(["benchmark", str(plan), "--out", str(done), "--cache", cache, "--json"]) == 1
    assert {name.split("--")[0] for name in trained} == {"too_many"}
    captured = capsys.readouterr()
    failures = json.loads(captured.out)["failures"]
    assert len(failures) == 2
    assert "fewer than its 9 prototypes" in failures[0]["reason"]
    assert "2 of 4 runs are finished, 2 things failed" in captured.err


def test_a_run_that_another_process_is_at_is_left_to_it(plan: Path, tmp_path: Path) -> None:
    found = Plan.read(plan)
    (tmp_path / "runs").mkdir()
    with FileLock(f"{tmp_path / 'runs' / found.cells[0].folder}.lock"):
        benchmark = running.Benchmark(
            Plan(found.title, found.measures, found.rows, found.columns, found.cells[:1]), tmp_path
        )
        (progress,) = benchmark.run()
    assert progress.failure is not None
    assert "another process" in progress.failure.reason


def test_settings_of_speed_do_not_make_another_plan(plan: Path, done: Path) -> None:
    tables = tomllib.loads(PLAN)
    tables["training"] |= {"workers": 3, "memory_format": "channels_last"}
    benchmark = running.Benchmark(Plan.of(tables, where="faster"), done)
    assert len(benchmark.results()) == 2
    tables["training"]["rate_head"] = 0.5
    assert running.Benchmark(Plan.of(tables, where="other"), done).results() == {}


def test_a_folder_of_another_plan_is_refused(
    plan: Path, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.toml"
    other.write_text(PLAN.replace("dimension = 8", "dimension = 9"))
    assert main(["benchmark", str(other), "--out", str(done)]) == 2
    assert "another network.dimension" in capsys.readouterr().err


MISTAKES = [
    (PLAN.replace("[[row]]", "[[rows]]"), "unknown key 'rows'"),
    (PLAN.replace("[[column]]", "[column]"), "has no [[column]]"),
    (PLAN.replace("seeds = [0, 1]", 'seeds = "all"'), "seeds must be a list"),
    (PLAN.replace('"accuracy", ', '"accuracies", '), "measures are some of"),
    (PLAN.replace('["accuracy", "balanced_accuracy"]', "1e400", 1), "measures are some of"),
    (PLAN.replace("dimension = 8", "dimensions = 8"), "did you mean 'dimension'"),
    (PLAN.replace("masks = 5", "masks = 0"), "--masks is 0"),
    (PLAN.replace('name = "too many"', 'name = "two prototypes"'), "two runs would share"),
    (PLAN.replace('data.data = "birds"', "network.prototypes_per_class = 3"), "both set"),
    (PLAN.replace("epochs = 2", "epochs = 2\nseed = 3", 1), "training.seed is set"),
    (PLAN.replace('name = "birds"', "names = 1"), "unknown key 'names'"),
    ("[[row]", "is not valid TOML"),
    (PLAN.replace("species = 2", "folds = 5", 1), "write folds = 5 at the top of the plan"),
    (PLAN.replace('"birds"', '"cub:nowhere/CUB"'), "no data of the plan is there: nowhere/CUB"),
    (PLAN.replace("timm:test_resnet", "timm:tast_resnet"), "timm has no model 'tast_resnet'"),
    (PLAN + 'network.network = "protopnt"', "network.network is 'protopnt'; choose one of"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "plan.toml", tmp_path / "out"
    path.write_text(text)
    assert main(["benchmark", str(path), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not out.exists()


@pytest.mark.parametrize("path", sorted((CONFIGS / "quick").glob("*.toml")), ids=lambda path: path.name)
def test_the_quick_tables_run_at_minimal_size(path: Path, tmp_path: Path) -> None:
    content = tomllib.loads(path.read_text())
    small = tomllib.loads(PLAN)
    content["data"] = small["data"] | {"image_size": 64}
    content["network"] = small["network"] | {"prototypes_per_class": 2}
    content["training"] = {**content["training"], **small["training"]}
    content["training"].pop("push_images")  # rows of one table set it
    benchmark = running.Benchmark(
        Plan.of(content, where=path.name), tmp_path / "out", cache=tmp_path / "cache"
    )
    assert [progress.failure for progress in benchmark.run() if progress.failure] == []
    found = save_benchmark(benchmark)
    assert found["finished"] == found["runs"] == len(content["row"])
    assert "–" not in (tmp_path / "out" / "table.md").read_text().split("Test split")[0]


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.toml")), ids=lambda path: path.name)
def test_every_plan_that_comes_along_is_valid(path: Path) -> None:
    for cell in Plan.read(path).cells:
        check_config(cell.config)
