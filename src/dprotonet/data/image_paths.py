"""The image files that a user means: files, folders with all that is below them, and patterns such as *.jpg.

A file named by itself is taken as it is, whatever its ending and even if it is missing: reading it says what
is wrong. In folders and among the matches of a pattern, images are known by their ending, and names that
begin with a dot are left out.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import NoReturn

from dprotonet.data.suffixes import IMAGE_ENDINGS, counted_endings, ignored_words, is_image
from dprotonet.errors import UserError


@dataclass(frozen=True)
class ImagePaths:
    """Each file once, in the order given and sorted within folders and patterns."""

    paths: tuple[Path, ...]
    repeated: int = 0  # how often a file was named again
    ignored: str = ""  # which files of folders are no images by their ending, in words


def image_paths(asked: Iterable[Path]) -> ImagePaths:
    """All files that are meant; an error for a folder or a pattern without images."""
    found: dict[str, Path] = {}
    total, others = 0, []
    for path in asked:
        images, rest = _expanded(path)
        total += len(images)
        others += rest
        for image in images:
            found.setdefault(os.path.abspath(image), image)
    ignored = ignored_words(counted_endings(other.name for other in others))
    return ImagePaths(tuple(found.values()), total - len(found), ignored)


def _expanded(path: Path) -> tuple[list[Path], list[Path]]:
    """The images that one argument stands for, and the other files beside them."""
    if path.is_dir():
        return _sorted_out(list(_below(path)), f"{path} has no image")
    if os.path.lexists(path) or not any(sign in str(path) for sign in "*?["):
        return [path], []
    matches = [Path(match) for match in sorted(glob(str(path), recursive=True))]
    if not matches:
        raise UserError(f"no file matches {path}; check the pattern, or name a folder")
    files = [file for match in matches for file in (_below(match) if match.is_dir() else [match])]
    return _sorted_out(files, f"no image matches {path}")


def _sorted_out(files: list[Path], complaint: str) -> tuple[list[Path], list[Path]]:
    images = [file for file in files if is_image(file)]
    others = [file for file in files if not is_image(file)]
    if not images:
        ignored = ignored_words(counted_endings(other.name for other in others))
        beside = f" ({ignored})" if ignored else ""
        raise UserError(f"{complaint}{beside}; images end in {', '.join(IMAGE_ENDINGS)}")
    return images, others


def _below(folder: Path) -> Iterator[Path]:
    """All files, at any depth, in a fixed order; a folder that links lead to twice is entered once."""
    entered = set()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=_refused):
        real = os.path.realpath(place)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def _refused(error: OSError) -> NoReturn:
    """A folder that cannot be listed would otherwise be missing without a word."""
    raise error
