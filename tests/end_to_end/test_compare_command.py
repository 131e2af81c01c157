"""`dprotonet compare` as a user types it: the table, its pictures, going on after a stop, and mistakes."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.data.birds import Birds
from dprotonet.experiment.compare import run as comparing
from dprotonet.metrics import measures

QUICK = "mdm:fast,iterations=1,zoom=1,gradcam,similarity"
ROWS = ["mdm:fast,iterations=1,zoom=1", "gradcam", "similarity", "random", "centre", "fake"]


@pytest.fixture(scope="module")
def compared(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """A finished comparison on three birds, and the words that made it."""
    out = tmp_path_factory.mktemp("compared") / "out"
    words = [str(run_folder), "--out", str(out), "--methods", QUICK, "--limit", "3", "--steps", "4"]
    assert main(["compare", *words]) == 0
    return words, out


def table(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "table.json").read_text())
    return content


def test_the_table_has_every_method_and_measure(compared: tuple[list[str], Path]) -> None:
    content = table(compared[1])
    assert [row["method"] for row in content["rows"]] == ROWS
    names = [measure.name for measure in measures.Protocol().measures]
    for row in content["rows"]:
        assert list(row["measures"]) == names
        assert row["images"] == 3
        for name, cell in row["measures"].items():
            assert cell["low"] <= cell["mean"] <= cell["high"], (row["method"], name)
    fake = content["rows"][-1]["measures"]
    assert fake["AD"]["mean"] < 5  # hides one pixel only
    assert content["rows"][0]["forward"] > content["rows"][1]["forward"] > 0
    assert content["protocol"]["deletion, insertion"] == "rise-4"
    assert content["failures"] == []


def test_every_form_of_the_table_says_the_same(compared: tuple[list[str], Path]) -> None:
    out = compared[1]
    rows = list(csv.DictReader((out / "table.csv").open()))
    means = {row["method"]: row["measures"]["deletion"]["mean"] for row in table(out)["rows"]}
    assert {row["method"]: float(row["deletion"]) for row in rows} == pytest.approx(means, rel=1e-4)
    markdown, latex = ((out / f"table.{kind}").read_text() for kind in ("md", "tex"))
    for name, mean in means.items():
        assert f"| {name} | " in markdown
        assert f"{mean:.3f}" in markdown
        assert f"{mean:.3f}" in latex
    assert latex.count(r"\\") == len(ROWS) + 1
    values = list(csv.DictReader((out / "values.csv").open()))
    assert len(values) == 3 * len(ROWS)
    mean = np.mean([float(row["deletion"]) for row in values if row["method"] == "gradcam"])
    assert mean == pytest.approx(means["gradcam"], rel=1e-4)


def test_pictures(compared: tuple[list[str], Path]) -> None:
    files = table(compared[1])["files"]
    for kind in ("curves", "sweep", "grid"):
        assert Image.open(files[kind]).width > 600


def test_what_was_measured_is_not_measured_again(
    compared: tuple[list[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, out = compared
    before = table(out)["rows"]
    lost = next((out / "done" / "gradcam").glob("*.npz"))
    lost.write_bytes(b"cut short")
    asked = []
    real = comparing.measured

    def counted(*given: Any, **settings: Any) -> Any:
        asked.append(given)
        return real(*given, **settings)

    monkeypatch.setattr(comparing, "measured", counted)
    assert main(["compare", *words, "--json"]) == 0
    assert len(asked) == 1  # the damaged one
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["measures"] for row in rows] == [row["measures"] for row in before]


def test_a_method_that_fails_on_one_image_does_not_stop_the_others(
    compared: tuple[list[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = compared[0][0]
    names = [row["image"] for row in csv.DictReader((compared[1] / "values.csv").open())][:3]
    contents = [np.arange(49).reshape(7, 7), np.full((64, 64), np.nan), np.ones((64, 64, 3))]
    for name, values in zip(names, contents, strict=True):
        path = (tmp_path / "maps" / name).with_suffix(".npy")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, values)
    words = [run, "--out", str(tmp_path / "out"), "--limit", "3", "--steps", "2", "--json"]
    assert main(["compare", *words, "--methods", f"file:{tmp_path / 'maps'}"]) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert [row["images"] for row in content["rows"]] == [1, 3, 3, 3]
    reasons = [failure["reason"] for failure in content["failures"]]
    assert "NaN" in reasons[0]
    assert "(64, 64, 3)" in reasons[1]
    assert captured.err.count("failed on") == 2


def test_a_method_that_always_fails_is_a_failed_computation(
    compared: tuple[list[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [compared[0][0], "--out", str(tmp_path / "out"), "--limit", "1", "--steps", "2"]
    assert main(["compare", *words, "--methods", f"file:{tmp_path},gradcam"]) == 1
    assert "explained no image" in capsys.readouterr().err
    assert (tmp_path / "out" / "table.csv").exists()


def test_images_without_classes_or_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    birds = Birds(species=4, per_species=1, split="test", size=64)
    for number in range(2):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    words = ["timm:test_resnet:none", "--data", f"images:{tmp_path}", "--out", str(tmp_path / "out")]
    assert main(["compare", *words, "--methods", "gradcam", "--steps", "2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["protocol"]["images"] == content["protocol"]["without truth"] == 2
    assert "DICE" not in content["rows"][0]["measures"]
    assert "sweep" not in content["files"]


def test_a_narrow_terminal_cuts_no_name(
    compared: tuple[list[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()
    assert main(["compare", *compared[0]]) == 0
    shown = capsys.readouterr().out
    tables = [line for line in shown.splitlines() if line.startswith(("┃", "│"))]
    assert len(tables) > 3 * len(ROWS)
    assert not [line for line in tables if "…" in line]
    for head in ("deletion ↓", "insertion ↑", "sensitivity ↑", "forward passes"):
        assert head in shown


def test_mosaics_ask_for_every_class_in_them(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dprotonet.experiment.compare.mosaics.SURE", 0.0)  # a network hardly trained
    words = ["compare", str(run_folder), "--out", str(tmp_path / "out"), "--methods", "gradcam"]
    words += ["--steps", "2"]
    assert main([*words, "--mosaic", "--limit", "1", "--json"]) == 0
    capsys.readouterr()
    assert main([*words, "--mosaic", "--limit", "2", "--json"]) == 0  # goes on
    content = json.loads(capsys.readouterr().out)
    assert content["protocol"]["class"] == "of one tile of a mosaic"
    assert content["protocol"]["images"] == 2
    centre = next(row for row in content["rows"] if row["method"] == "centre")
    assert centre["measures"]["energy"]["mean"] == pytest.approx(0.25, abs=0.01)
    assert Image.open(content["files"]["grid"]).width > 600
    assert main([*words, "--limit", "2"]) == 2  # not mixed with plain images
    assert "another" in capsys.readouterr().err


def test_a_folder_of_another_plan_is_refused(
    compared: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words, out = compared
    before = (out / "table.json").read_bytes()
    assert main(["compare", *words, "--top", "0.5"]) == 2
    assert "another protocol" in capsys.readouterr().err
    assert (out / "table.json").read_bytes() == before


MISTAKES = [
    ("compare RUN", "--out"),
    ("compare RUN --out FILE", "is a file; name a folder"),
    ("compare OUT --out OUT", "is not a run folder"),
    ("compare timm:test_resnet:none --out OUT", "on which images?"),
    ("compare RUN --out OUT --methods lemon", "unknown method 'lemon'; known: mdm, mdm-prototype, gradcam"),
    ("compare RUN --out OUT --methods ,", "names no method"),
    ("compare RUN --out OUT --methods mdm:slow", "unknown preset 'slow'"),
    ("compare RUN --out OUT --methods mdm:fast,speed=1", "has no value 'speed'"),
    ("compare RUN --out OUT --methods mdm:fast,zoom=big", "such as iterations=10"),
    ("compare timm:test_resnet:none --data birds --out OUT --methods similarity", "prototype network"),
    ("compare RUN --out OUT --judges roda", "--judges: unknown judge 'roda'; known: road, references"),
    ("compare RUN --out OUT --limit 0", "--limit is 0"),
    ("compare RUN --out OUT --steps 0", "--steps is 0"),
    ("compare RUN --out OUT --top 1.5", "--top is 1.5"),
    ("compare RUN --out OUT --data images:OUT", "does not exist"),
    ("compare RUN --out OUT --data stamps", "unknown data set"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "file", tmp_path / "out"
    file.write_text("")
    places = {"RUN": str(run_folder), "FILE": str(file), "OUT": str(out)}
    given = [word.replace("images:OUT", f"images:{out}") for word in words.split()]
    assert main([places.get(word, word) for word in given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not out.exists()
