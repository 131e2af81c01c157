"""Which files are images by the ending of their name; the others are counted, lest any be lost in silence.

What is inside a file is left to `image`: it goes by the content, for DICOM alone by the ending.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from dprotonet.data.dicom import SUFFIX
from dprotonet.extras import import_extra

IMAGE_ENDINGS = (
    ".jpg",
    ".jpeg",
    ".jfif",
    ".png",
    ".bmp",
    ".tif",
    ".tiff",
    ".webp",
    ".gif",
    ".ppm",
    ".pgm",
    SUFFIX,
)
NO_ENDING = "without an ending"


def is_image(name: str | PurePath) -> bool:
    """By its name, in capitals or not."""
    return PurePath(name).suffix.lower() in IMAGE_ENDINGS


def counted_endings(names: Iterable[str]) -> dict[str, int]:
    """How many files have each ending, the commonest first."""
    return dict(Counter(PurePath(name).suffix.lower() or NO_ENDING for name in names).most_common())


def ignored_words(counts: Mapping[str, int]) -> str:
    """Such as "ignored by their ending: 6 .xyz, 1 .txt"; nothing where nothing was ignored."""
    if not counts:
        return ""
    return f"ignored by their ending: {', '.join(f'{count} {ending}' for ending, count in counts.items())}"


def check_dicom(names: Sequence[str]) -> None:
    """Better to know before the first file is opened that DICOM cannot be read here."""
    if found := [name for name in names if name.lower().endswith(SUFFIX)]:
        import_extra(
            "pydicom", extra="data", needed_for=f"reading DICOM ({len(found)} files such as {found[0]})"
        )
