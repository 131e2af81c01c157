"""Commands as several processes: what one process says, every image once; or a sentence at once."""

import csv
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dprotonet.cli import launched
from dprotonet.cli.main import COMMANDS, main
from dprotonet.data.birds import Birds

SCRIPT = Path(__file__).with_name("commands_together.py")
TIMES = ("seconds",)  # the only columns that may differ


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven images, one of them broken: batches that two processes cannot share evenly."""
    folder = tmp_path_factory.mktemp("photos")
    birds = Birds(species=4, per_species=2, split="test", size=64)
    for number in range(6):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    (folder / "3b.png").write_bytes(b"no image")
    return folder


def commands(run: Path, photos: Path, out: Path) -> list[list[str]]:
    predict = ["predict", str(run), str(photos), "--batch-size", "2"]
    few = ["--methods", "gradcam,gradcam++", "--limit", "5", "--steps", "4"]
    quality = ["--maps", "similarity", "--images", "2", "--top", "3"]
    return [
        ["evaluate", str(run), "--out", str(out / "evaluation")],
        ["compare", str(run), *few, "--out", str(out / "compared")],
        [*predict, "--out", str(out / "answers.csv")],
        [*predict, "--json"],
        ["quality", str(run), *quality, "--out", str(out / "quality")],
    ]


def together(arguments: list[str], processes: int) -> list[str]:
    """What each of the processes wrote to stdout."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1"}
    running = []
    for number in range(processes):
        place = {"RANK": number, "LOCAL_RANK": number, "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
        environment = {**os.environ, **{key: str(value) for key, value in {**group, **place}.items()}}
        environment |= {"CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, *arguments]
        running.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    told = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0] * processes, told
    return [out for out, _ in told]


@pytest.fixture(scope="module")
def both(
    run_folder: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, list[str]]:
    """Results of one process and of two, and what the two printed."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for words in commands(run_folder, photos, one):
        assert main(words) == 0
    return one, two, together([str(SCRIPT), json.dumps(commands(run_folder, photos, two))], 2)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_evaluate(both: tuple[Path, Path, list[str]]) -> None:
    one, two, _ = both
    alone, shared = (read(place / "evaluation" / "test.json") for place in (one, two))
    for name in ("images", "accuracy", "confusion", "per_class"):
        assert alone[name] == shared[name]
    assert shared["brier"] == pytest.approx(alone["brier"], abs=1e-6)


def test_compare(both: tuple[Path, Path, list[str]]) -> None:
    one, two, _ = both
    tables = []
    for place in (one, two):
        with (place / "compared" / "values.csv").open(encoding="utf-8", newline="") as file:
            tables.append([{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)])
    assert len(tables[0]) == 5 * 5  # methods with controls
    assert tables[0] == tables[1]


def test_predict(both: tuple[Path, Path, list[str]]) -> None:
    one, two, printed = both
    assert (one / "answers.csv").read_bytes() == (two / "answers.csv").read_bytes()
    assert sorted(path.name for path in two.iterdir()) == ["answers.csv", "compared", "evaluation", "quality"]
    (line,) = [line for line in printed[0].splitlines() if line.startswith("{")]
    said = json.loads(line)
    assert [Path(item["name"]).name for item in said["predictions"]] == [f"{n}.png" for n in range(6)]
    assert [Path(name).name for name in said["skipped"]] == ["3b.png"]


def test_quality(both: tuple[Path, Path, list[str]]) -> None:
    one, two, _ = both
    alone, shared = (read(place / "quality" / "quality.json") for place in (one, two))
    assert alone["images"] == 8
    assert alone == shared


def test_only_the_main_process_prints(both: tuple[Path, Path, list[str]]) -> None:
    assert both[2][1] == ""


def test_other_commands_stop_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would each do all of the work and write over one another."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    for command in COMMANDS.keys() - set(launched.DIVIDED):
        assert main([command, "runs/birds"]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"dprotonet: {command} does not divide its work: 2 processes")
        assert told.count("\n") == 1
    assert main(["quality", "runs/birds", "--intervention", "3"]) == 2
    assert "--intervention does not divide its work" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("launcher", "variable"),
    [("srun", "SLURM_STEP_NUM_TASKS"), ("mpirun", "OMPI_COMM_WORLD_SIZE"), ("mpirun", "PMI_SIZE")],
)
def test_strangers_stop_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], launcher: str, variable: str
) -> None:
    monkeypatch.setenv(variable, "4")
    assert main(["evaluate", "runs/birds"]) == 2
    assert f"{launcher} started 4 processes that do not know of each other" in capsys.readouterr().err
    monkeypatch.setenv(variable, "1")
    assert main(["evaluate", "runs/birds"]) == 2
    assert "runs/birds does not exist" in capsys.readouterr().err


def test_a_batch_that_is_too_small_for_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert main(["train", "--batch-size", "15", "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert "--batch-size 15 is for all 8 processes together" in told
    assert "give 16 at least" in told
    assert list(tmp_path.iterdir()) == []
