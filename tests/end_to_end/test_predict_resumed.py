"""`dprotonet predict --out FILE.csv` after a stop: all rows, and never those of another model."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.end_to_end.prediction_tables import COUNT, counted, table, words

from dprotonet.cli.main import main
from dprotonet.experiment.runs.familiarity import Familiarity, prototypes_digest
from dprotonet.experiment.trained.trained_model import TrainedModel


@pytest.mark.parametrize("batch", [0, 1, 4, 6])
def test_interrupted_and_gone_on_with_is_the_same_file(
    run_folder: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped_at: Callable[..., None],
    batch: int,
) -> None:
    whole, out = tmp_path / "whole.csv", tmp_path / "out" / "answers.csv"
    assert main(words(run_folder, photos, whole)) == 0
    with monkeypatch.context():
        stopped_at(batch)
        assert main(words(run_folder, photos, out)) == 130
    assert os.listdir(out.parent) == ["answers.csv.part"]
    part = out.parent / "answers.csv.part"
    assert part.read_bytes().count(b"\n") == 1 + batch
    monkeypatch.undo()
    part.write_bytes(part.read_bytes() + b'[["half a li')  # as a kill in the middle of writing leaves it
    looked = counted(monkeypatch)
    assert main(words(run_folder, photos, out)) == 0
    assert len(looked) == 7 - batch  # nothing was done twice
    assert out.read_bytes() == whole.read_bytes()
    assert os.listdir(out.parent) == ["answers.csv"]


def test_a_failure_keeps_rows_and_says_so(
    run_folder: Path, photos: Path, tmp_path: Path, stopped_at: Callable[..., None]
) -> None:
    stopped_at(2, RuntimeError)
    assert main(words(run_folder, photos, tmp_path / "answers.csv")) == 1
    assert (tmp_path / "answers.csv.part").read_bytes().count(b"\n") == 3


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_killed_process_loses_nothing(run_folder: Path, photos: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.csv", tmp_path / "answers.csv"
    assert main([*words(run_folder, photos, whole)[:-1], "1"]) == 0
    command = [sys.executable, "-m", "dprotonet", *words(run_folder, photos, out)[:-1], "1"]
    part = tmp_path / "answers.csv.part"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if part.exists() and part.read_bytes().count(b"\n") > 3:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    if not out.exists():  # else it was faster than we
        assert main([*words(run_folder, photos, out)[:-1], "1"]) == 0
    assert out.read_bytes() == whole.read_bytes()


def _stricter(run: Path, copy: Path) -> Path:
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoint"))
    known = Familiarity(1e-3, 0.05, 40, prototypes_digest(TrainedModel.load(run).prototyped))
    known.write(copy)
    return copy


def test_rows_of_something_else_are_never_mixed(
    run_folder: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped_at: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, out, part = tmp_path / "photos", tmp_path / "answers.csv", tmp_path / "answers.csv.part"
    shutil.copytree(photos, own)
    stopped_at(2)
    assert main(words(run_folder, own, out)) == 130
    monkeypatch.undo()
    begun = part.read_bytes()
    other = _stricter(run_folder, tmp_path / "run")

    def refused(asked: list[str], message: str) -> None:
        capsys.readouterr()
        assert main(asked) == 2
        assert f"was begun with another {message}; --overwrite begins anew" in capsys.readouterr().err
        assert part.read_bytes() == begun
        assert not out.exists()

    refused(words(other, own, out), "model")
    refused([*words(run_folder, own, out)[:-1], "5"], "--batch-size")
    refused(words(run_folder, own, out, "--classes", "1"), "--classes")
    assert main(words(other, own, out, "--overwrite")) == 0
    assert {row["familiar"] for row in table(out)} == {"false", ""}  # all of the other model


def test_a_folder_that_grew_is_gone_on_with(
    run_folder: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped_at: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """16 rows are there; then a file is new, one has changed (of a row that was there), one is gone."""
    own, out = tmp_path / "photos", tmp_path / "answers.csv"
    shutil.copytree(photos, own)
    stopped_at(2)
    assert main(words(run_folder, own, out)) == 130
    monkeypatch.undo()
    shutil.copy(own / "day 0" / "48.png", own / "a new.png")
    shutil.copy(own / "day 0" / "03.png", own / "day 0" / "06.png")
    (own / "day 0" / "09.png").unlink()
    looked = counted(monkeypatch)
    capsys.readouterr()
    assert main(words(run_folder, own, out)) == 0
    said = capsys.readouterr().err
    assert "14 of them from an earlier, interrupted run" in said
    assert "(file changed, or not named any more): 2" in said
    assert sum(looked) == 1 + 1 + (50 - 16) - 2  # new, changed, all that was missing but two broken ones
    rows = {Path(row["file"]).name: row for row in table(out)}
    assert [row["file"] for row in table(out)] == [str(path) for path in _walked(own)]
    for name in ("class", "probability", "distance"):
        assert rows["06.png"][name] == rows["03.png"][name]
        assert rows["a new.png"][name] == rows["48.png"][name]
    monkeypatch.undo()
    assert main(words(run_folder, own, tmp_path / "at once.csv")) == 0
    _close(table(out), table(tmp_path / "at once.csv"))


def _walked(folder: Path) -> list[Path]:
    """A folder's own files, then those of its folders."""
    names = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    return [file for path in names for file in ([path] if path.is_file() else sorted(path.iterdir()))]


def _close(mine: list[dict[str, str]], theirs: list[dict[str, str]]) -> None:
    """Equal up to the last digit, which may depend on the other images of a batch."""
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        for name, value in one.items():
            if name in ("probability", "distance") and value:
                assert float(value) == pytest.approx(float(other[name]), abs=2e-6)
            elif not name[-1].isdigit():
                assert value == other[name]


def test_a_damaged_part_is_refused(
    run_folder: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped_at: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, part = tmp_path / "answers.csv", tmp_path / "answers.csv.part"
    stopped_at(3)
    assert main(words(run_folder, photos, out)) == 130
    monkeypatch.undo()
    lines = part.read_bytes().splitlines(keepends=True)
    narrow = json.dumps([[stamp, row[:-1]] for stamp, row in json.loads(lines[1])]).encode() + b"\n"
    torn = [lines[0], lines[1][:50] + b"\n", *lines[2:]]
    for damage in (torn, [lines[0], b"[]\n"], [lines[0], b"[7]\n"], [b"7\n"], [lines[0], narrow]):
        part.write_bytes(b"".join(damage))
        assert main(words(run_folder, photos, out)) == 2
        assert "is damaged; --overwrite" in capsys.readouterr().err


def test_a_table_is_not_overwritten_unless_asked(
    run_folder: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped_at: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "answers.csv"
    out.write_text("mine")
    assert main(words(run_folder, photos, out)) == 2
    assert "exists already; --overwrite" in capsys.readouterr().err
    stopped_at(2)
    assert main(words(run_folder, photos, out, "--overwrite")) == 130
    assert out.read_text() == "mine"  # until the new one is whole
    monkeypatch.undo()
    assert main(words(run_folder, photos, out, "--overwrite")) == 0
    assert "16 of them from an earlier, interrupted run" in capsys.readouterr().err
    assert len(table(out)) == COUNT
