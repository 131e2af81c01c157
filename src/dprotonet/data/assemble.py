"""From the list of images that a data set's own files give, to its three splits.

Scan, boxes against the true sizes, classes that nothing is left of, leaks, shares set aside: all that the
readers of official data sets have in common. How their files are written is left to each of them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dprotonet.data.base import Splits
from dprotonet.data.box import Box, Extent, Point
from dprotonet.data.duplicates import find_duplicates, report_duplicates
from dprotonet.data.image import MaskRule, shown
from dprotonet.data.listed import ListedImages
from dprotonet.data.problems import some
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile, scan
from dprotonet.data.stratified_split import stratified_split
from dprotonet.errors import UserError

_TOLERANCE = 1.0  # pixels by which a box may reach outside: many count from 1, or round

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """What a reader found in a data set's own files, before any image was opened."""

    files: Sequence[ImageFile]
    classes: Sequence[str]
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    rule: MaskRule = shown
    test_fraction: float | None = None  # where there is no official test split


def assembled(root: Path, listing: Listing, reading: Reading) -> Splits:
    """The three splits; whatever is wrong is warned of and kept in `Splits.problems`."""
    if not listing.files:
        reason = _first_problem(listing.problems)
        raise UserError(f"{root} has none of the images that its files name: {reason}")
    scanned = scan(root, listing.files, rule=listing.rule, on_progress=reading.on_progress)
    problems = {what: list(names) for what, names in listing.problems.items()}
    problems["unreadable masks"] = [f"{name} ({why})" for name, why in scanned.broken_masks.items()]
    files = [_fitted(file, problems) for file in scanned.files]
    if listing.test_fraction is not None:
        files = _with_test(files, listing.test_fraction, reading.seed)
    classes = _populated(listing.classes, files, problems)
    found = find_duplicates(files)
    report_duplicates(found, allow_leaks=reading.allow_leaks)
    members = _with_val(files, reading, problems)
    _warn(problems)
    problems["the same image twice within a split"] = list(found.repeats)
    parts = {
        split: ListedImages(
            root, chosen, classes=classes, size=reading.size, rule=listing.rule, cache=reading.cache
        )
        for split, chosen in members.items()
    }
    return Splits(
        parts["train"],
        parts["val"],
        parts["test"],
        skipped=scanned.skipped,
        leaks=found.leaks,
        problems={what: tuple(names) for what, names in problems.items() if names},
        absent=listing.absent,
    )


def _first_problem(problems: Mapping[str, Sequence[str]]) -> str:
    return next((f"{what}: {some(names)}" for what, names in problems.items() if names), "no image is named")


def _warn(problems: Mapping[str, Sequence[str]]) -> None:
    for what, names in problems.items():
        if names:
            _log.warning("%s (%d): %s", what, len(names), some(names))


def _fitted(file: ImageFile, problems: dict[str, list[str]]) -> ImageFile:
    """The file with its boxes, its crop and its points within the image."""
    boxes = _placed(file)
    if boxes is not None:
        boxes = tuple(box for box in (_inside(box, file, problems) for box in boxes) if box)
    crop = file.crop.clipped(file.extent) if file.crop else None
    points = tuple(_on(point, file.extent) for point in file.points)
    if points != file.points:
        problems.setdefault("part points outside the image, ignored", []).append(file.name)
    return replace(file, boxes=boxes, crop=None if crop is None or crop.empty else crop, points=points)


def _placed(file: ImageFile) -> tuple[Box, ...] | None:
    """The boxes in pixels of this image, which may be a copy of another size than they were drawn on."""
    if file.boxes is None or file.drawn_on is None:
        return file.boxes
    across, down = (own / other for own, other in zip(file.extent, file.drawn_on, strict=True))
    return tuple(box.scaled(across, down) for box in file.boxes)


def _inside(box: Box, file: ImageFile, problems: dict[str, list[str]]) -> Box | None:
    inside = box.clipped(file.extent)
    where = f"{file.name} ({', '.join(f'{edge:g}' for edge in box)} in {file.extent[0]} × {file.extent[1]})"
    if inside.empty:
        problems.setdefault("boxes without area in the image, ignored", []).append(where)
        return None
    if box.overhang(file.extent) > _TOLERANCE:
        problems.setdefault("boxes that reach outside the image, cut at its edge", []).append(where)
    return inside


def _on(point: Point, extent: Extent) -> Point:
    if point.place is None or (0 <= point.place[0] <= extent[0] and 0 <= point.place[1] <= extent[1]):
        return point
    return point._replace(place=None)


def _populated(
    classes: Sequence[str], files: Iterable[ImageFile], problems: dict[str, list[str]]
) -> tuple[str, ...]:
    """The classes that have images; those without any cannot be learnt, nor asked for."""
    pairs = {(file.split, file.class_name) for file in files}
    having = {split: {name for where, name in pairs if where == split} for split in ("train", "test")}
    either = having["train"] | having["test"]
    problems["classes without any image, left out"] = [name for name in classes if name not in either]
    for split, names in having.items():
        problems[f"classes without {split} images"] = [
            name for name in classes if name in either and name not in names
        ]
    kept = tuple(name for name in classes if name in either)
    if len(kept) < 2 or not having["train"] or not having["test"]:
        counts = ", ".join(f"{len(names)} in {split}" for split, names in having.items())
        raise UserError(
            f"images of two classes are needed in train and in test; found classes: {counts}; "
            f"{_first_problem(problems)}"
        )
    return kept


def _with_test(files: Sequence[ImageFile], fraction: float, seed: int) -> list[ImageFile]:
    aside = {file.name for file in stratified_split(files, fraction=fraction, seed=(seed, 1)).files}
    return [replace(file, split="test" if file.name in aside else "train") for file in files]


def _with_val(
    files: Sequence[ImageFile], reading: Reading, problems: dict[str, list[str]]
) -> dict[str, list[ImageFile]]:
    train = [file for file in files if file.split == "train"]
    share = stratified_split(train, fraction=reading.val_fraction, seed=(reading.seed,))
    problems["classes with too few training images to set one aside for validation"] = list(share.short)
    if not share.files:
        raise UserError(f"no class has two different training images; {_first_problem(problems)}")
    aside = {file.name for file in share.files}
    return {
        "train": [file for file in train if file.name not in aside],
        "val": share.files,
        "test": [file for file in files if file.split == "test"],
    }
