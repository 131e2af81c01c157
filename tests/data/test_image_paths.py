"""Which files are meant by files, folders and patterns."""

import os
from pathlib import Path

import pytest

from dprotonet.data.image_paths import image_paths
from dprotonet.errors import UserError


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "b.png",
        "a.JPG",
        "deep/er/c.png",
        "notes.txt",
        "deep/more.txt",
        ".hidden.png",
        ".cache/d.png",
    ):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)
    return Path("photos")


def names(*asked: str | Path) -> list[str]:
    return [path.as_posix() for path in image_paths(map(Path, asked)).paths]


def test_a_folder_is_all_images_below_it(photos: Path) -> None:
    found = image_paths([photos])
    assert [path.as_posix() for path in found.paths] == [
        "photos/a.JPG",
        "photos/b.png",
        "photos/deep/er/c.png",
    ]
    assert found.ignored == "ignored by their ending: 2 .txt"


def test_patterns(photos: Path) -> None:
    assert names("photos/*.png") == ["photos/b.png"]
    assert names("photos/**/*.png") == ["photos/b.png", "photos/deep/er/c.png"]
    assert names("photos/*") == names(photos)  # a folder that matches is taken whole


def test_a_file_named_twice_is_taken_once(photos: Path) -> None:
    found = image_paths([photos / "b.png", photos, photos.absolute() / "deep" / ".." / "b.png"])
    assert found.repeated == 2
    assert [path.name for path in found.paths] == ["b.png", "a.JPG", "c.png"]


def test_a_named_file_is_taken_as_it_is(photos: Path) -> None:
    (photos / "odd[1]*.png").touch()  # a file of that name is no pattern
    assert names(photos / "odd[1]*.png") == ["photos/odd[1]*.png"]
    assert names("missing.png", "photos/notes.txt") == ["missing.png", "photos/notes.txt"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("photos/*.webp", r"no file matches photos/\*\.webp"),
        ("photos/*.txt", r"no image matches photos/\*\.txt \(ignored by their ending: 1 \.txt\)"),
        ("empty", "empty has no image; images end in .jpg"),
        ("texts", r"texts has no image \(ignored by their ending: 1 \.md\)"),
    ],
)
def test_nothing_found_is_an_error(photos: Path, asked: str, message: str) -> None:
    Path("empty").mkdir()
    Path("texts").mkdir()
    Path("texts/a.md").touch()
    with pytest.raises(UserError, match=message):
        image_paths([photos, Path(asked)])


def test_a_link_to_the_folder_itself_is_no_endless_way(photos: Path) -> None:
    (photos / "deep" / "again").symlink_to(photos.absolute(), target_is_directory=True)
    assert names(photos) == ["photos/a.JPG", "photos/b.png", "photos/deep/er/c.png"]


@pytest.mark.skipif(
    os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all"
)
def test_a_folder_that_cannot_be_listed_is_not_left_out(photos: Path) -> None:
    (photos / "deep").chmod(0)
    try:
        with pytest.raises(PermissionError):
            image_paths([photos])
    finally:
        (photos / "deep").chmod(0o755)
