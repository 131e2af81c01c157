"""CUB-200-2011: 200 kinds of birds with the official split, boxes, segmentations and parts.

ROOT is the folder CUB_200_2011 of the original archive. The segmentations are an archive of their own, to be
unpacked in ROOT or beside it; without them the truth is the box, and a cropped image has none, since its box
is all of it. docs/data.md has the whole tree.

Unstated: whether the paper's birds are cropped to their boxes, as ProtoPNet's are. Both are available.
Unstated: the threshold of a segmentation, which is a mean over annotators. One half here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from dprotonet.data.assemble import Listing, assembled
from dprotonet.data.base import Splits
from dprotonet.data.box import Box, Point
from dprotonet.data.image import bright
from dprotonet.data.problems import check_complete, finite_number
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile
from dprotonet.errors import UserError

_ARCHIVE = "CUB_200_2011.tgz"
_OFFICIAL = {
    name: _ARCHIVE
    for name in (
        "images",
        "images.txt",
        "image_class_labels.txt",
        "classes.txt",
        "train_test_split.txt",
        "bounding_boxes.txt",
    )
}
_NUMBERED = re.compile(r"^\d+\.")
Rows = Mapping[str, Sequence[str]]  # by the number of the image, as it is written


def cub_splits(root: Path, reading: Reading) -> Splits:
    """The whole images."""
    listing, _ = _listed(root)
    return assembled(root, listing, reading)


def cropped_cub_splits(root: Path, reading: Reading) -> Splits:
    """The images cropped to the bird's box, and the truth with them; the box itself is none any more."""
    listing, boxes = _listed(root)
    files = [replace(file, crop=boxes.get(file.name), boxes=None) for file in listing.files]
    return assembled(root, replace(listing, files=files), reading)


@dataclass(frozen=True)
class _Tables:
    images: Rows
    labels: Rows
    splits: Rows
    boxes: Rows
    parts: Mapping[str, tuple[Point, ...]]


def _listed(root: Path) -> tuple[Listing, dict[str, Box]]:
    check_complete(root, _OFFICIAL)
    tables = _Tables(
        images=_rows(root / "images.txt", 2),
        labels=_rows(root / "image_class_labels.txt", 2),
        splits=_rows(root / "train_test_split.txt", 2),
        boxes=_rows(root / "bounding_boxes.txt", 5),
        parts=_points(root),
    )
    classes = _readable({number: row[0] for number, row in _rows(root / "classes.txt", 2).items()})
    masks, absent = _segmentations(root)
    problems = _problems(root, tables, classes)
    boxes = {_name(tables, n): _box(row) for n, row in tables.boxes.items() if n in tables.images}
    unusable = {name for names in problems.values() for name in names}
    files = [
        replace(file, boxes=(boxes[file.name],) if file.name in boxes else None, masks=masks.get(file.name))
        for file in (_file(number, tables, classes) for number in tables.images if number in tables.labels)
        if file.name not in unusable
    ]
    if masks:
        problems["images without a segmentation"] = [file.name for file in files if file.masks is None]
    problems["images without a box"] = [file.name for file in files if file.boxes is None]
    if not tables.parts:
        absent["parts/part_locs.txt"] = f"where 15 parts of each bird are (from {_ARCHIVE})"
    return Listing(files, list(classes.values()), problems, absent, rule=bright), boxes


def _file(number: str, tables: _Tables, classes: Mapping[str, str]) -> ImageFile:
    return ImageFile(
        name=_name(tables, number),
        split="train" if tables.splits.get(number, ["?"])[0] == "1" else "test",
        class_name=classes.get(tables.labels[number][0], ""),
        points=tables.parts.get(number, ()),
    )


def _name(tables: _Tables, number: str) -> str:
    return f"images/{tables.images[number][0]}"


def _problems(root: Path, tables: _Tables, classes: Mapping[str, str]) -> dict[str, list[str]]:
    """Images that cannot be used, each under the first thing that is wrong with it."""
    found: dict[str, list[str]] = {
        "labels for missing images": [],
        "images without a class": [],
        "images without a split": [],
    }
    for number, (relative, *_) in tables.images.items():
        if not _is_file(root / "images" / relative):
            found["labels for missing images"].append(f"images/{relative}")
        elif tables.labels.get(number, [""])[0] not in classes:
            found["images without a class"].append(f"images/{relative}")
        elif tables.splits.get(number, [""])[0] not in ("0", "1"):
            found["images without a split"].append(f"images/{relative}")
    unknown = [number for number in tables.labels if number not in tables.images]
    return {**found, "numbers in image_class_labels.txt that images.txt lacks": unknown}


def _is_file(path: Path) -> bool:
    """A name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _segmentations(root: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The mask of each image by its name, or what is absent."""
    for place in ("segmentations", "../segmentations"):
        folder = root / place
        if folder.is_dir():
            paths = (path.relative_to(folder) for path in sorted(folder.glob("*/*.png")))
            stems = {f"images/{path.with_suffix('.jpg').as_posix()}": path.as_posix() for path in paths}
            return {image: (str(PurePosixPath(place) / mask),) for image, mask in stems.items()}, {}
    gives = "the outline of each bird (from segmentations.tgz); without it the box is truth, cropped none"
    return {}, {"segmentations/": gives}


def _points(root: Path) -> dict[str, tuple[Point, ...]]:
    places, names = root / "parts" / "part_locs.txt", root / "parts" / "parts.txt"
    if not (places.is_file() and names.is_file()):
        return {}
    parts = {number: part for number, (part,) in _rows(names, 2).items()}
    points: dict[str, list[Point]] = {}
    for line in _lines(places):
        image, part, x, y, visible = _cells(places, line, 5)
        across, down = _numbers(places, (x, y))
        place = (across, down) if visible == "1" else None
        points.setdefault(image, []).append(Point(parts.get(part, part), place))
    return {image: tuple(found) for image, found in points.items()}


def _readable(classes: Mapping[str, str]) -> dict[str, str]:
    """001.Black_footed_Albatross as Black footed Albatross, if no two become the same by it."""
    plain = {number: _NUMBERED.sub("", name).replace("_", " ") for number, name in classes.items()}
    return plain if len(set(plain.values())) == len(plain) else dict(classes)


def _box(row: Sequence[str]) -> Box:
    x, y, width, height = _numbers(Path("bounding_boxes.txt"), row)
    return Box(x, y, x + width, y + height)


def _rows(path: Path, cells: int) -> dict[str, list[str]]:
    return {number: rest for number, *rest in (_cells(path, line, cells) for line in _lines(path))}


def _cells(path: Path, line: str, count: int) -> list[str]:
    cells = line.split(maxsplit=count - 1)
    if len(cells) != count:
        raise UserError(
            f"{path}: the line {line!r} has {len(cells)} entries instead of {count}; unpack it anew"
        )
    return cells


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]


def _numbers(path: Path, cells: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(finite_number(cell) for cell in cells)
    except ValueError:
        raise UserError(f"{path}: {' '.join(cells)!r} are no numbers; unpack it anew") from None
