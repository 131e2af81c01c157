"""`dprotonet data check` as a user types it: what it counts, what it complains of, and its exit code."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.cli.train import absolute
from dprotonet.config import DataConfig
from dprotonet.experiment.build.data import READERS
from dprotonet.experiment.data_check import check_data_set
from original_layouts import make_cars, make_cub, make_palm, make_rsna, paint


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["data", "check", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_counts_sizes_truth_and_sheet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code, content = check(capsys, f"cub:{make_cub(tmp_path / 'CUB_200_2011')}", "--out", str(out))
    assert code == 0
    assert content == json.loads((out / "check.json").read_text())
    train, test = content["splits"]["train"], content["splits"]["test"]
    assert train["per_class"] == {"Black footed Albatross": 3, "Laysan Albatross": 3}
    assert (train["images"], test["images"]) == (6, 4)
    assert train["sizes"] == {"least": [30, 20], "median": [30, 20], "most": [30, 20]}
    assert (train["truth"]["known"], train["truth"]["measured"], train["truth"]["empty"]) == (6, 6, 0)
    assert train["truth"]["share"] == pytest.approx(8 * 6 / 600, abs=0.01)  # the outline of the originals
    assert train["parts"] == ["back", "left eye"]
    assert not content["failed"]
    with Image.open(out / "sheet.png") as sheet:
        assert sheet.width > sheet.height > 100


@pytest.mark.parametrize(
    ("word", "make"),
    [("cub-cropped", make_cub), ("cars", make_cars), ("rsna", make_rsna), ("palm", make_palm)],
)
def test_every_public_data_set(
    word: str, make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, content = check(capsys, f"{word}:{make(tmp_path / 'data')}", "--out", str(tmp_path / "out"))
    assert code == 0
    assert all(facts["truth"]["known"] == facts["images"] for facts in content["splits"].values())
    assert content["problems"] == content["missing"] == content["absent"] == content["unreadable"] == {}


def test_the_built_in_birds() -> None:
    config = DataConfig(
        species=2, image_size=32, train_per_species=120, val_per_species=1, test_per_species=2
    )
    facts = check_data_set(config).report.splits
    assert (facts["train"].images, facts["train"].truth.known, facts["train"].truth.measured) == (
        240,
        240,
        200,
    )
    assert facts["test"].sizes.median == (32, 32)
    assert "beak" in facts["test"].parts


def test_a_missing_official_file_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_cub(tmp_path / "CUB_200_2011")
    (root / "images.txt").unlink()
    shutil.rmtree(root / "images")
    code, content = check(capsys, f"cub:{root}", "--out", str(tmp_path / "out"))
    assert code == 1
    assert list(content["missing"]) == [str(root / "images"), str(root / "images.txt")]
    assert not (tmp_path / "out").exists()
    assert "image_class_labels.txt" in content["found"]
    assert main(["data", "check", f"cub:{root}", "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert f"{root / 'images.txt'} (from CUB_200_2011.tgz)" in shown.replace("\n", "")
    assert f"the folder holds: {', '.join(content['found'])}; " in shown


def test_sizes_and_pictures_are_told_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    for name in [f"{split}/{kind}/{i}.png" for split in ("train", "test") for kind in "ab" for i in range(3)]:
        paint(tmp_path / "data" / name, random.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    words = ["data", "check", f"folder:{tmp_path / 'data'}", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "test: all 8 × 6 pixels; truth for 0 of 6" in told
    assert f"; images: {tmp_path / 'out' / 'sheet.png'}" in told
    paint(tmp_path / "data" / "test" / "a" / "large.png", np.zeros((7, 9, 3), dtype=np.uint8))
    paint(tmp_path / "data" / "test" / "a" / "narrow.png", np.zeros((40, 2, 3), dtype=np.uint8))
    assert main(words) == 0
    told = "test: widths 2 to 9 (median 8), heights 6 to 40 (median 6) pixels; "
    assert told in capsys.readouterr().out  # no image is 2 × 6, none 9 × 40


def test_files_ignored_by_their_ending_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [f"{split}/{kind}/{i}.png" for split in ("train", "test") for kind in "ab" for i in range(3)]:
        paint(tmp_path / "data" / name)
    for number in range(6):
        (tmp_path / "data" / "train" / "a" / f"{number}.xyz").write_bytes(b"an image of another kind")
    (tmp_path / "data" / "test" / "b" / "notes.txt").write_text("")
    words = [f"folder:{tmp_path / 'data'}", "--out", str(tmp_path / "out")]
    code, content = check(capsys, *words)
    assert (code, content["ignored"]) == (0, {".xyz": 6, ".txt": 1})
    assert main(["data", "check", *words]) == 0
    assert "ignored by their ending: 6 .xyz, 1 .txt\n" in capsys.readouterr().out


def test_leaks_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        for kind in "ab":
            for number in range(3):
                paint(tmp_path / "data" / split / kind / f"{number}.png")
    shutil.copy(tmp_path / "data/train/a/0.png", tmp_path / "data/test/a/leak.png")
    words = f"folder:{tmp_path / 'data'}", "--out", str(tmp_path / "out")
    code, content = check(capsys, *words)
    assert (code, content["failed"]) == (1, True)
    assert content["leaks"] == ["train/a/0.png = test/a/leak.png"]


def test_long_lists_are_cut_in_the_report_and_whole_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_cub(tmp_path / "CUB_200_2011", per_class=18)
    for path in sorted((root / "images" / "001.Black_footed_Albatross").iterdir())[:13]:
        path.unlink()
    for path in sorted((root / "images" / "002.Laysan_Albatross").iterdir())[:2]:
        path.write_bytes(b"broken")
    assert main(["data", "check", f"cub:{root}", "--out", str(tmp_path / "out")]) == 0
    caught = capsys.readouterr()
    shown = caught.out.splitlines()
    start = shown.index("labels for missing images: 13")
    assert shown[start + 11] == "  and 3 more"
    assert "unreadable images, left out: 2" in shown
    assert "warning" not in caught.err  # the report says it, once
    content = json.loads((tmp_path / "out" / "check.json").read_text())
    assert len(content["problems"]["labels for missing images"]) == 13


MISTAKES = [
    ("data", "what shall be done with the data?"),
    ("data chekc birds", "'chekc' is no command of dprotonet data"),
    ("data check", "data"),
    ("data check cups:PATH", "unknown data set"),
    ("data check cub:PATH/nowhere", "does not exist"),
    ("data check cub:PATH/a.png", "is a file"),
    ("data check cub", "use cub:PATH"),
    ("data check birds --out PATH/a.png", "is a file; name a folder"),
]


@pytest.mark.parametrize(("line", "complaint"), MISTAKES)
def test_mistakes_are_one_line(
    line: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paint(tmp_path / "a.png")
    assert main(line.replace("PATH", str(tmp_path)).split()) == 2
    caught = capsys.readouterr()
    assert complaint in caught.err
    assert len(caught.err.strip().splitlines()) == 1
    assert caught.out == ""


def test_a_relative_path_is_kept_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(DataConfig(data="cub:here")).data == f"cub:{tmp_path.resolve() / 'here'}"
    assert absolute(DataConfig(data="birds")).data == "birds"


def test_the_page_on_data_has_every_word() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    assert all(f"`{word}:PATH`" in page for word in READERS)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--help"]) == 0
    assert "data check SPEC" in capsys.readouterr().out
