"""Folders that cannot be used: how the message says what is wrong and what to do."""

import os
import shutil
from pathlib import Path

import pytest
from tests.data.conftest import paint, refusal


def test_missing_root_and_file_as_root(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere")
    assert "is a file" in refusal(paint(tmp_path / "a.png"))


def test_root_without_splits_says_what_it_must_look_like(tmp_path: Path) -> None:
    (tmp_path / "Training").mkdir()
    message = refusal(tmp_path)
    assert "ROOT/train/CLASS" in message
    assert "found: Training/" in message
    assert "found: nothing" in refusal(tmp_path / "Training")


def test_images_without_folders_are_counted_not_listed(tmp_path: Path) -> None:
    for number in range(12):
        paint(tmp_path / f"{number:02d}.png")
    (tmp_path / "notes.txt").write_text("")
    message = refusal(tmp_path)
    assert "found: notes.txt, 12 images such as 00.png. Images need a folder for each class" in message
    assert "11.png" not in message


def test_class_folders_directly_in_root(tmp_path: Path) -> None:
    paint(tmp_path / "robin" / "1.png")
    paint(tmp_path / "tit" / "1.png")
    message = refusal(tmp_path)
    assert "robin, tit" in message
    assert "directly in ROOT" in message


def test_root_one_level_too_high(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    above = tmp_path_factory.mktemp("above")
    shutil.copytree(root, above / "unpacked")
    assert f"did you mean {above / 'unpacked'}" in refusal(above)


def test_missing_test_split(root: Path) -> None:
    shutil.rmtree(root / "test")
    assert "found: train/" in refusal(root)


def test_split_without_classes(root: Path) -> None:
    shutil.rmtree(root / "test")
    paint(root / "test" / "loose.png")
    message = refusal(root)
    assert str(root / "test") in message
    assert "1 loose images" in message


def test_empty_class_is_named(root: Path) -> None:
    (root / "test" / "wren").mkdir()
    message = refusal(root)
    assert os.path.join("test", "wren") in message
    assert "it holds no images;" in message


def test_a_class_of_unknown_endings_is_empty_and_says_why(root: Path) -> None:
    for path in (root / "test" / "tit").iterdir():
        path.rename(path.with_suffix(".heic"))
    assert "it holds no images (ignored by their ending: 3 .heic); add images" in refusal(root)


def test_class_of_broken_images_is_empty(root: Path) -> None:
    for path in (root / "test" / "tit").iterdir():
        path.write_bytes(b"broken")
    message = refusal(root)
    assert os.path.join("test", "tit") in message
    assert "all 3 images are unreadable" in message


@pytest.mark.parametrize(("has", "lacks"), [("train", "test"), ("test", "train")])
def test_class_that_one_split_lacks(root: Path, has: str, lacks: str) -> None:
    paint(root / has / "wren" / "1.png")
    message = refusal(root)
    assert f"{lacks}/ lacks" in message
    assert f"{has}/ has: wren" in message


def test_classes_differing_in_case_only_are_pointed_out(root: Path) -> None:
    (root / "test" / "tit").rename(root / "test" / "Tit")
    message = refusal(root)
    assert "'tit' and 'Tit'" in message
    assert "to the letter" in message


def test_one_class_is_not_enough(root: Path) -> None:
    shutil.rmtree(root / "train" / "tit")
    shutil.rmtree(root / "test" / "tit")
    assert "only one class, robin" in refusal(root)


@pytest.mark.parametrize("options", [{"val_fraction": 0.0}, {"val_fraction": 1.0}])
def test_impossible_fractions(root: Path, options: dict[str, float]) -> None:
    assert "val_fraction" in refusal(root, **options)
