"""`dprotonet predict --out FILE.csv`: all rows, also after a stop, and never those of another model."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.data.birds import Birds
from dprotonet.experiment.runs.familiarity import Familiarity, prototypes_digest
from dprotonet.experiment.trained.trained_model import TrainedModel

COUNT, BATCH = 50, 8
BROKEN = (0, 17, 49)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 images, three of which are broken in three ways."""
    folder = tmp_path_factory.mktemp("photos")
    birds = Birds(species=4, per_species=4, split="test", size=64)
    for number in range(COUNT):
        bird = birds[number % len(birds)].image.roll(number, dims=2)  # no two alike
        path = folder / f"day {number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(bird.permute(1, 2, 0).numpy()).save(path)
    whole = (folder / "day 0" / "48.png").read_bytes()
    for number, content in zip(BROKEN, (b"", b"no image at all", whole[: len(whole) // 2]), strict=True):
        next(folder.rglob(f"{number:02d}.png")).write_bytes(content)
    return folder


def words(run: Path, photos: Path, out: Path, *more: str) -> list[str]:
    return ["predict", str(run), str(photos), "--out", str(out), "--batch-size", str(BATCH), *more]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def stopped_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, type[BaseException]], None]:
    """The network fails in the batch of that number."""

    def plant(number: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        plain, calls = TrainedModel.answers_to, iter(range(10_000))

        def failing(model: TrainedModel, inputs: Any) -> Any:
            if next(calls) == number:
                raise kind("planted")
            return plain(model, inputs)

        monkeypatch.setattr(TrainedModel, "answers_to", failing)

    return plant


def test_a_row_for_every_image_and_the_broken_named_and_counted(
    run_folder: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "not" / "there" / "answers.csv"
    assert main(words(run_folder, photos, out)) == 0
    rows = table(out)
    named = sorted(photos.rglob("*.png"))
    assert [row["file"] for row in rows] == list(map(str, named))
    broken = {row["file"]: row["error"] for row in rows if row["error"]}
    assert sorted(int(Path(name).stem) for name in broken) == list(BROKEN)
    assert all(row["class"] == row["probability"] == row["familiar"] == "" for row in rows if row["error"])
    said = capsys.readouterr().err
    assert "could not be read: 3 of 50" in said
    assert all(name in said.replace("\n", "") for name in broken)
    assert os.listdir(out.parent) == ["answers.csv"]  # nothing else is left


def test_rows_say_what_predict_says(run_folder: Path, photos: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "answers.csv", dp.load(run_folder)
    assert main(words(run_folder, photos, out, "--classes", "9")) == 0  # there are four
    rows = table(out)
    ranked = ["class_2", "probability_2", "class_3", "probability_3", "class_4", "probability_4"]
    assert list(rows[0]) == ["file", "class", "probability", "familiar", "distance", *ranked, "error"]
    for row in [row for row in rows if not row["error"]][::7]:
        wanted = model.predict(row["file"])
        assert row["class"] == wanted.class_name
        assert float(row["probability"]) == pytest.approx(wanted.probability, abs=2e-6)
        assert row["familiar"] == str(wanted.familiar).lower()
        assert float(row["distance"]) == pytest.approx(wanted.distance, abs=1e-5)
        others = {row[f"class_{rank}"]: float(row[f"probability_{rank}"]) for rank in (2, 3, 4)}
        assert list(others.values()) == sorted(others.values(), reverse=True)
        for name, value in others.items():
            assert value == pytest.approx(wanted.probabilities[name], abs=2e-6)


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
    looked = _counted(monkeypatch)
    assert main(words(run_folder, photos, out)) == 0
    assert len(looked) == 7 - batch  # nothing was done twice
    assert out.read_bytes() == whole.read_bytes()
    assert os.listdir(out.parent) == ["answers.csv"]


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    plain, looked = TrainedModel.answers_to, []

    def counting(model: TrainedModel, inputs: Any) -> Any:
        looked.append(len(inputs))
        return plain(model, inputs)

    monkeypatch.setattr(TrainedModel, "answers_to", counting)
    return looked


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
    looked = _counted(monkeypatch)
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


def test_names_that_need_quotes(run_folder: Path, photos: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    names = [
        'comma, and "quotes".png',
        "new\nline\rand return.png",
        "späte Vögel 鳥.png",
        "=1+1.png",
        " a .png",
    ]
    for name in names:
        shutil.copy(photos / "day 0" / "48.png", odd / name)
    out = tmp_path / "answers.csv"
    assert main(words(run_folder, odd, out)) == 0
    assert {Path(row["file"]).name for row in table(out)} == set(names)
    assert all(row["class"] and not row["error"] for row in table(out))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_no_text(run_folder: Path, photos: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.mkdir()
    shutil.copy(photos / "day 0" / "48.png", os.fsencode(odd) + b"/bad\xff.png")
    assert main(words(run_folder, odd, tmp_path / "answers.csv")) == 0
    (row,) = table(tmp_path / "answers.csv")
    assert row["file"].endswith("bad\\udcff.png")
    assert row["class"]


def test_a_file_named_twice_has_one_row(
    run_folder: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, one = tmp_path / "answers.csv", str(photos / "day 0" / "48.png")
    assert main(["predict", str(run_folder), one, str(photos / "day 0" / "4*.png"), "--out", str(out)]) == 0
    files = [row["file"] for row in table(out)]
    assert files[0] == one
    assert len(files) == len(set(files))
    assert "named more than once and taken once: 1" in capsys.readouterr().err


def test_all_broken_is_told_in_the_table_and_by_the_exit_code(
    run_folder: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answers.csv"
    missing = str(tmp_path / "missing.png")
    assert (
        main(["predict", str(run_folder), str(photos / "day 0" / "00.png"), missing, "--out", str(out)]) == 2
    )
    assert "no image could be read" in capsys.readouterr().err
    assert [row["error"] for row in table(out)] == ["the file is empty", "No such file or directory"]


def test_prediction_sets_in_table_json_and_words(
    run_folder: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "answers.csv"
    shutil.copytree(run_folder, run, ignore=shutil.ignore_patterns("checkpoint"))
    path = run / "calibration.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "scores": [0.6] * 8 + [0.8] * 2}))  # limit of 0.8 coverage: 0.8
    assert main(words(run, photos, out, "--coverage", "0.8")) == 0
    model = dp.load(run)
    for row in [row for row in table(out) if not row["error"]][::7]:
        shares = model.predict(row["file"]).probabilities
        wanted = [name for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] >= 0.2]
        assert json.loads(row["class_set"]) == wanted
        assert model.predict(row["file"], coverage=0.8).class_set == tuple(wanted)
    assert all(row["class_set"] == "" for row in table(out) if row["error"])
    image = str(photos / "day 0" / "48.png")
    capsys.readouterr()
    assert main(["predict", str(run), image, "--coverage", "0.8", "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["predictions"]
    assert (said["coverage"], said["class_set"][0]) == (0.8, said["class_name"])
    assert main(["predict", str(run), image, "--coverage", "0.8"]) == 0
    assert "the true class is among such in 80.0 %" in capsys.readouterr().out.replace("\n", " ")
    assert main(["predict", str(run), image, "--coverage", "0.95"]) == 2
    assert (
        "takes 19 images that the run has not learned from, and it was calibrated on 10"
        in capsys.readouterr().err
    )
    for odd in ("0", "1", "1.5", "nan"):
        assert main(["predict", str(run), image, "--coverage", odd]) == 2
        assert "between 0 and 1" in capsys.readouterr().err
    path.unlink()
    assert main(words(run, photos, tmp_path / "b.csv", "--coverage", "0.8")) == 2
    assert "run dprotonet calibrate first" in capsys.readouterr().err


MISTAKES = [
    ("PHOTOS/*.webp --out OUT/a.csv", "no file matches"),
    ("OUT/empty --out OUT/a.csv", "has no image"),
    ("PHOTOS --out OUT/folder.csv", "is a folder"),
    ("PHOTOS --out OUT/a.xlsx", "tables are written as .csv or .parquet"),
    ("PHOTOS --out OUT/pictures --overwrite", "--overwrite is for a table"),
    ("PHOTOS --out OUT/a.csv --classes 0", "--classes must be at least 1"),
    ("PHOTOS --out OUT/a.parquet", "pip install 'dprotonet[parquet]'"),
    ("PHOTOS --out OUT/file/a.csv", "a file is where a folder should be"),
]


@pytest.mark.parametrize(("asked", "message"), MISTAKES, ids=[asked for asked, _ in MISTAKES])
def test_mistakes_are_told_before_the_work(
    run_folder: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: str,
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    looked = _counted(monkeypatch)
    for name in ("empty", "folder.csv"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    given = [word.replace("OUT", str(tmp_path)).replace("PHOTOS", str(photos)) for word in asked.split()]
    assert main(["predict", str(run_folder), *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert sorted(tmp_path.rglob("*")) == before
    assert not looked


def test_json_is_a_summary(
    run_folder: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(run_folder, photos, tmp_path / "answers.csv", "--json")) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["images"], content["kept"], len(content["unreadable"])) == (COUNT, 0, len(BROKEN))
    assert Path(content["table"]).is_file()


def test_folders_and_patterns_without_a_table(
    run_folder: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["predict", str(run_folder), str(photos / "day 1"), str(photos / "*" / "00.png"), "--json"]) == 0
    )
    content = json.loads(capsys.readouterr().out)
    names = [item["name"] for item in content["predictions"]]
    assert names == [str(path) for path in sorted((photos / "day 1").glob("*.png")) if path.stem != "49"]
    assert [Path(name).stem for name in content["skipped"]] == ["49", "00"]


def test_parquet_has_the_same_rows(run_folder: Path, photos: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main(words(run_folder, photos, tmp_path / "a.csv")) == 0
    assert main(words(run_folder, photos, tmp_path / "a.parquet")) == 0
    found = parquet.read_table(tmp_path / "a.parquet")
    types = {field.name: str(field.type) for field in found.schema}
    assert types["probability_2"] == types["distance"] == "double"
    assert (types["familiar"], types["file"], types["class_3"]) == ("bool", "string", "string")
    _same(found.to_pylist(), table(tmp_path / "a.csv"))


def test_parquet_is_given_the_same_rows_with_their_types(
    run_folder: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for pyarrow, where that is not installed."""
    arrow, parquet, written = ModuleType("pyarrow"), ModuleType("pyarrow.parquet"), []
    for name in ("float64", "bool_", "string"):
        setattr(arrow, name, lambda name=name: name)
    arrow.schema = dict  # type: ignore[attr-defined]
    arrow.table = lambda cells, schema: SimpleNamespace(cells=cells, schema=schema)  # type: ignore[attr-defined]

    def write(made: Any, path: str) -> None:
        written.append(made)
        Path(path).write_bytes(b"PAR1")

    parquet.write_table = write  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    assert main(words(run_folder, photos, tmp_path / "a.csv")) == 0
    assert main(words(run_folder, photos, tmp_path / "a.parquet")) == 0
    (made,) = written
    assert list(made.schema) == list(table(tmp_path / "a.csv")[0])
    numbers = {name for name, kind in made.schema.items() if kind == "float64"}
    assert numbers == {"probability", "probability_2", "probability_3", "distance"}
    assert [name for name, kind in made.schema.items() if kind == "bool_"] == ["familiar"]
    rows = [dict(zip(made.cells, row, strict=True)) for row in zip(*made.cells.values(), strict=True)]
    _same(rows, table(tmp_path / "a.csv"))
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.parquet"]


def _same(typed: list[dict[str, Any]], text: list[dict[str, str]]) -> None:
    """What CSV says in words, by value."""
    assert len(typed) == len(text)
    for mine, theirs in zip(typed, text, strict=True):
        for name, value in mine.items():
            if value is None:
                assert theirs[name] == ""
            elif isinstance(value, bool):
                assert theirs[name] == str(value).lower()
            else:
                assert type(value)(theirs[name]) == value
