"""What a data set is made of, and what is wrong with it, before anything is trained on it.

Counts, sizes and problems are those of all images. How much of an image the truth covers is measured on a
sample of each split, evenly spread, because masks of large sets take long to read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from PIL import Image

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData, Sample, Splits
from dprotonet.data.listed import ListedImages
from dprotonet.data.problems import MissingOfficialFile
from dprotonet.experiment.build.data import build_splits, class_counts, has_rows
from dprotonet.figures import contact_sheet, outlined
from dprotonet.files import whole
from dprotonet.progress import Progress

MEASURED = 200  # truths of a split that are opened
SHEET_COLUMNS = 8
SHEET_SHARES = {"train": 16, "val": 8, "test": 16}


@dataclass(frozen=True)
class Sizes:
    """Sides of the original images in pixels."""

    least: tuple[int, int]  # width, height
    median: tuple[float, float]
    most: tuple[int, int]


@dataclass(frozen=True)
class TruthCover:
    """For how many images there is truth, and what it is like in those that were measured."""

    known: int
    measured: int
    empty: int  # of the measured: there is nothing to be found in the image
    share: float | None  # mean share of the pixels, over the measured that are not empty


@dataclass(frozen=True)
class SplitFacts:
    images: int
    per_class: Mapping[str, int]
    sizes: Sizes
    truth: TruthCover
    parts: Sequence[str]


@dataclass(frozen=True)
class DataReport:
    """All that `dprotonet data check` says; the official files that are missing leave nothing else to say."""

    data: str
    splits: Mapping[str, SplitFacts] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    found: Sequence[str] = ()  # what lies in the folder instead, where official files are missing
    absent: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    leaks: Sequence[str] = ()
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)  # files by their ending

    @property
    def failed(self) -> bool:
        """Nothing measured on this data could be trusted."""
        return bool(self.missing or self.leaks)

    def content(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {**asdict(self), "failed": self.failed}


@dataclass(frozen=True)
class CheckedData:
    report: DataReport
    splits: Splits | None


def check_data_set(config: DataConfig, on_progress: Progress | None = None) -> CheckedData:
    """Read a data set and judge it; an incomplete download is a finding, not an error."""
    try:
        splits = build_splits(replace(config, allow_leaks=True), on_progress)
    except MissingOfficialFile as error:
        return CheckedData(DataReport(config.data, missing=error.files, found=_lying_in(config.data)), None)
    report = DataReport(
        config.data,
        splits={name: _facts(data) for name, data in _named(splits).items()},
        absent=dict(splits.absent),
        unreadable=dict(splits.skipped),
        leaks=splits.leaks,
        problems=dict(splits.problems),
        ignored=dict(splits.ignored),
    )
    return CheckedData(report, splits)


def _lying_in(data: str) -> tuple[str, ...]:
    """The names in the folder of KIND:FOLDER, folders with a slash."""
    root = Path(data.partition(":")[2]).expanduser()
    return tuple(child.name + "/" * child.is_dir() for child in sorted(root.iterdir()))


def save_sheet(splits: Splits, path: Path) -> None:
    """Some images of every split with their truth outlined, as one PNG."""
    with whole(path) as temporary:
        data_sheet(splits).save(temporary, format="PNG")


def data_sheet(splits: Splits) -> Image.Image:
    """Images spread evenly over every split, truth outlined, split and class beneath."""
    images, captions = [], []
    for name, data in _named(splits).items():
        for index in _spread(len(data), SHEET_SHARES[name]):
            sample = data[index]
            images.append(sample.image if sample.truth is None else outlined(sample.image, sample.truth))
            captions.append(f"{_said(data, sample)}\n{name}")
    return contact_sheet(torch.stack(images), columns=SHEET_COLUMNS, captions=captions)


def _said(data: ImageData, sample: Sample) -> str:
    """The class of an image, or its labels."""
    if has_rows(data):
        return ", ".join(sample.findings) or "no label"
    return data.classes[sample.label]


def _named(splits: Splits) -> dict[str, ImageData]:
    return {"train": splits.train, "val": splits.val, "test": splits.test}


def _facts(data: ImageData) -> SplitFacts:
    counts = class_counts(data)
    return SplitFacts(
        images=len(data),
        per_class=dict(zip(data.classes, counts, strict=True)),
        sizes=_sizes(data),
        truth=_truth_cover(data),
        parts=sorted(data[0].parts) if len(data) else (),
    )


def _sizes(data: ImageData) -> Sizes:
    if isinstance(data, ListedImages):
        extents = [data.extent(index) for index in range(len(data))]
    else:  # drawn, all alike
        height, width = data[0].image.shape[-2:]
        extents = [(width, height)]
    widths, heights = zip(*extents, strict=True)
    return Sizes((min(widths), min(heights)), (median(widths), median(heights)), (max(widths), max(heights)))


def _truth_cover(data: ImageData) -> TruthCover:
    known = _with_truth(data)
    chosen = [known[place] for place in _spread(len(known), MEASURED)]
    truths = [data.truth(i) if isinstance(data, ListedImages) else data[i].truth for i in chosen]
    shares = [truth.float().mean().item() for truth in truths if truth is not None]
    covering = [share for share in shares if share > 0]
    mean_share = mean(covering) if covering else None
    return TruthCover(len(known), len(chosen), len(shares) - len(covering), mean_share)


def _with_truth(data: ImageData) -> list[int]:
    if isinstance(data, ListedImages):
        return [index for index, file in enumerate(data.files) if file.has_truth]
    return list(range(len(data)))  # drawn, and so known


def _spread(count: int, wanted: int) -> list[int]:
    """At most so many numbers below `count`, evenly spaced."""
    taken = min(count, wanted)
    return [number * count // taken for number in range(taken)]
