"""`dprotonet predict --out FILE.csv`: a row for every image, and mistakes told before the work."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.end_to_end.prediction_tables import BROKEN, COUNT, counted, table, words

import dprotonet as dp
from dprotonet.cli.main import main


def test_a_row_for_every_image_and_the_broken_named_andcounted(
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
    path.write_text(json.dumps({**json.loads(path.read_text()), "source": "training images, by 5 networks"}))
    assert main(["predict", str(run), image, "--coverage", "0.95"]) == 2
    assert "on more with dprotonet calibrate --data" in capsys.readouterr().err  # not on folds again
    for odd in ("0", "1", "1.5", "nan"):
        assert main(["predict", str(run), image, "--coverage", odd]) == 2
        assert ("finite" if odd == "nan" else "between 0 and 1") in capsys.readouterr().err
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
    looked = counted(monkeypatch)
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
