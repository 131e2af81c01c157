"""SIGTERM, as Slurm and Docker send it, ends every long command like Ctrl-C: a sentence, and nothing held."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.data.birds import Birds
from dprotonet.experiment.compare.run import Comparison
from dprotonet.experiment.quality.quality import QualityCheck
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.training.engine import Engine

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no SIGTERM")

TINY = [
    *["--recipe", "paper", "--mode", "frozen", "--species", "2", "--train-per-species", "6"],
    *["--val-per-species", "4", "--image-size", "64", "--epochs", "2", "--warm-epochs", "1"],
    *["--push-every", "1", "--last-layer-epochs", "1", "--views-per-epoch", "1", "--augmentations", "1"],
    *["--batch-size", "4", "--masks", "12", "--dimension", "16", "--prototypes-per-class", "2"],
    *["--push-images", "2", "--backbone", "timm:test_resnet:none"],
]
PLAN = """
title = "Tiny"
seeds = [0]
measures = ["accuracy"]

[data]
species = 2
train_per_species = 4
val_per_species = 2
test_per_species = 2
image_size = 32

[network]
backbone = "timm:test_resnet:none"
dimension = 8
prototypes_per_class = 1
masks = 6

[training]
mode = "frozen"
epochs = 1
warm_epochs = 0
push_every = 1
push_images = 1

[[row]]
name = "ours"

[[column]]
name = "birds"
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    birds = Birds(species=2, per_species=3, split="test", size=64)
    for number in range(len(birds)):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str, int], None]:
    """SIGTERM arrives while a method is called for the `nth` time."""

    def plant(owner: type, method: str, nth: int) -> None:
        plain, calls = getattr(owner, method), iter(range(10_000))

        def interrupted(*args: Any, **options: Any) -> Any:
            if next(calls) == nth:
                os.kill(os.getpid(), signal.SIGTERM)
            return plain(*args, **options)

        monkeypatch.setattr(owner, method, interrupted)

    return plant


def told(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dprotonet: ")]
    assert len(lines) == 1, lines
    return lines[0]


def test_train_goes_on_with_resume(
    tmp_path: Path,
    ended: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["train", *TINY, "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context():
        ended(Engine, "step", 7)
        assert main(words) == 143
    monkeypatch.undo()
    assert told(capsys) == "dprotonet: train was ended by SIGTERM; go on with --resume"
    assert not (tmp_path / "run.lock").exists()
    assert (tmp_path / "run" / "checkpoint" / "state.json").is_file()
    assert signal.getsignal(signal.SIGTERM) == before  # the process of a caller is as it was
    assert main([*words, "--resume"]) == 0


def test_train_that_had_not_begun(
    tmp_path: Path, ended: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--resume` would answer that there is no run, or go on with the one that was to be overwritten."""
    from dprotonet.experiment.runs.trainer import Trainer

    ended(Trainer, "new_network", 0)
    assert main(["train", *TINY, "--out", str(tmp_path / "run")]) == 143
    assert "nothing was written yet, the same command starts again" in told(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        (["--folds", "2"], "the same command goes on from there"),
        (["--folds", "2", "--overwrite"], "the same command goes on from there, without --overwrite"),
        (["--mode", "auto"], "the same command goes on with the trials"),
    ],
)
def test_train_in_folds_and_trials(
    tmp_path: Path,
    ended: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    advice: str,
) -> None:
    ended(Engine, "step", 4)
    words = ["train", *TINY, "--val-per-species", "1", *more]
    assert main([*words, "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]) == 143
    assert told(capsys) == f"dprotonet: train was ended by SIGTERM; {advice}"
    assert not list(tmp_path.rglob("*.lock"))


def test_predict_into_a_table(
    run_folder: Path,
    photos: Path,
    tmp_path: Path,
    ended: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "answers.csv"
    words = ["predict", str(run_folder), str(photos), "--out", str(out), "--batch-size", "2"]
    ended(TrainedModel, "answers_to", 2)
    assert main(words) == 143
    monkeypatch.undo()
    assert "the same command goes on from there" in told(capsys)
    assert not (tmp_path / "answers.csv.lock").exists()
    (tmp_path / "answers.csv.0123456789ab.tmp").write_text("as a kill leaves it")
    assert main(words) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "photos"]


def test_a_table_that_was_whole_when_the_kill_came(
    run_folder: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its renaming and the removal of its rows: the same command said that it exists already."""
    from dprotonet.experiment.trained.unfinished_table import UnfinishedTable

    out = tmp_path / "answers.csv"
    words = ["predict", str(run_folder), str(photos), "--out", str(out), "--batch-size", "2"]

    def killed(_: UnfinishedTable) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(UnfinishedTable, "remove", killed)
        assert main(words) == 130
    whole = out.read_bytes()
    assert main(words) == 0
    assert out.read_bytes() == whole
    assert not (tmp_path / "answers.csv.part").exists()


def test_compare_benchmark_and_quality(
    run_folder: Path, tmp_path: Path, ended: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    ended(Comparison, "case", 1)
    out = ["--methods", "gradcam", "--limit", "2", "--out", str(tmp_path / "compared")]
    assert main(["compare", str(run_folder), *out]) == 143
    assert told(capsys).endswith("compare was ended by SIGTERM; the same command goes on from there")
    ended(Engine, "step", 1)
    words = ["benchmark", str(plan), "--out", str(tmp_path / "table"), "--cache", str(tmp_path / "cache")]
    assert main(words) == 143
    assert told(capsys).endswith("benchmark was ended by SIGTERM; the same command goes on from there")
    assert not list(tmp_path.rglob("*.lock"))
    ended(QualityCheck, "_looked", 0)
    out = ["--maps", "similarity", "--images", "1", "--out", str(tmp_path / "quality")]
    assert main(["quality", str(run_folder), *out]) == 143
    assert told(capsys) == "dprotonet: quality was ended by SIGTERM"


def test_a_process_that_gets_it_twice(tmp_path: Path) -> None:
    """As launchers send it: the second one must not cut the tidying short."""
    words = ["train", *TINY, "--epochs", "400", "--cache", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "dprotonet", *words, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (tmp_path / "run" / "checkpoint").is_dir():
            time.sleep(0.01)
        process.terminate()
        process.terminate()
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(timeout=60) == 143, said
    assert "train was ended by SIGTERM; go on with --resume" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run.lock").exists()


def test_a_server_that_is_ended(run_folder: Path) -> None:
    command = [sys.executable, "-m", "dprotonet", "serve", str(run_folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("open http")
        time.sleep(0.5)  # until it listens to signals itself
        server.terminate()
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 143, errors
    assert "serve was ended by SIGTERM" in errors
    assert "Traceback" not in errors
