"""Every file of a data set read once at the start, in threads: what is broken, how large, and its digest.

Later access is lazy. Which files there are, and what is known of each, is left to the readers; what the
digests say of copies and leaks to `duplicates`.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from dprotonet.data.box import Box, Extent, Point
from dprotonet.data.digest import content_digest
from dprotonet.data.image import MaskRule, UnreadableImage, probed_extent, read_mask, shown
from dprotonet.data.problems import some
from dprotonet.progress import Progress

_SCAN_SIZE = 8  # pixels
_WAITING = 4096  # files that wait for a thread

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One image: its posix name below the root, what its data set says of it, and what the scan learnt.

    Masks are merged and come before boxes; None of them means that nothing is known, () that there is
    nothing to be seen. Images of one group (a patient) are never split.
    """

    name: str
    split: str
    class_name: str
    masks: tuple[str, ...] | None = None
    boxes: tuple[Box, ...] | None = None
    drawn_on: Extent | None = None  # the image that the boxes are of, where it is not this one
    crop: Box | None = None
    points: tuple[Point, ...] = ()
    group: str = ""
    extent: Extent = (0, 0)
    digest: str = ""
    truth_digest: str = ""

    @property
    def has_truth(self) -> bool:
        return self.masks is not None or self.boxes is not None


@dataclass
class Scanned:
    """The readable files with their digests, and why the others and which masks cannot be read."""

    files: list[ImageFile] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    broken_masks: dict[str, str] = field(default_factory=dict)


def scan(
    root: Path,
    files: Sequence[ImageFile],
    *,
    rule: MaskRule = shown,
    on_progress: Progress | None = None,
) -> Scanned:
    """Read all files; an image with a broken mask stays, without its masks."""
    result = Scanned()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for done, one in enumerate(_in_turn(pool, lambda file: _examined(root, file, rule), files), start=1):
            result.files += one.files
            result.skipped.update(one.skipped)
            result.broken_masks.update(one.broken_masks)
            if on_progress:
                on_progress(done, len(files))
    if result.skipped:
        names = some(result.skipped)
        _log.warning("skipped %d of %d images as unreadable: %s", len(result.skipped), len(files), names)
    return result


def _in_turn(
    pool: ThreadPoolExecutor, look: Callable[[ImageFile], Scanned], files: Sequence[ImageFile]
) -> Iterator[Scanned]:
    """In their order; a million tasks that wait would take a gigabyte."""
    for first in range(0, len(files), _WAITING):
        yield from pool.map(look, files[first : first + _WAITING])


def _examined(root: Path, file: ImageFile, rule: MaskRule) -> Scanned:
    try:
        data = (root / file.name).read_bytes()
        known = replace(file, extent=probed_extent(data, name=file.name), digest=content_digest(data))
    except OSError as error:
        return Scanned(skipped={file.name: error.strerror or str(error)})
    except UnreadableImage as error:
        return Scanned(skipped={file.name: error.reason})
    digests, broken = [], {}
    for mask in file.masks or ():
        try:
            read_mask(root / mask, size=_SCAN_SIZE, rule=rule)
            digests.append(content_digest((root / mask).read_bytes()))
        except UnreadableImage as error:
            broken[mask] = error.reason
    kept = replace(known, masks=None) if broken else known
    return Scanned([replace(kept, truth_digest=_truth_digest(kept, digests))], broken_masks=broken)


def _truth_digest(file: ImageFile, masks: Sequence[str]) -> str:
    """Over the masks, and whatever else the name does not tell; the one mask's own where there is no more."""
    said = (file.boxes, file.crop, file.points, file.group)
    if len(masks) <= 1 and said == (None, None, (), ""):
        return "".join(masks)
    return content_digest(repr((masks, file.class_name, *said)).encode())
