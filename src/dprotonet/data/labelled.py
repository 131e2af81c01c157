"""A folder of images and its labels.csv: several findings per image (multi-label), in three splits.

Where the table does not say which split an image is in, shares are set aside label by label, the rarest
first, so that each keeps its frequency; patients and equal files are never torn apart. Reading is left to
`scan` and `image`, the table to `label_table`.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dprotonet.data.base import Sample, Splits
from dprotonet.data.duplicates import find_duplicates, report_duplicates, together
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.label_table import NAME, LabelTable, read_label_table
from dprotonet.data.listed import ListedImages
from dprotonet.data.problems import check_root, some
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile, scan
from dprotonet.data.suffixes import IMAGE_ENDINGS, check_dicom, is_image
from dprotonet.errors import UserError

TEST_FRACTION = 0.2  # where the table names no splits

_log = logging.getLogger(__name__)


class LabelledImages(ListedImages):
    """One split of a folder with labels.csv; `classes` are the labels, `labels` 0 and 1 (N, L)."""

    def __init__(
        self,
        root: Path,
        files: Iterable[ImageFile],
        *,
        having: Mapping[str, frozenset[str]],
        classes: Sequence[str],
        size: int,
        cache: ImageCache | None = None,
    ) -> None:
        super().__init__(root, files, classes=classes, size=size, cache=cache)
        self.having = tuple(having[file.name] for file in self.files)
        self.labels = label_rows(self.having, self.classes)

    @property
    def fingerprint(self) -> str:
        """The same images with other labels are other data."""
        said = [(file.name, sorted(had)) for file, had in zip(self.files, self.having, strict=True)]
        return blake2b(repr((super().fingerprint, self.classes, said)).encode(), digest_size=16).hexdigest()

    def _numbered(self) -> tuple[int, ...]:
        return (-1,) * len(self.files)  # no class: labels are rows

    def __getitem__(self, index: int) -> Sample:
        image = self.image(index)
        return Sample(image, label=-1, name=self.files[index].name, findings=self._ordered(index))

    def _ordered(self, index: int) -> tuple[str, ...]:
        return tuple(name for name in self.classes if name in self.having[index])


def label_rows(having: Sequence[Iterable[str]], classes: Sequence[str]) -> Tensor:
    """Which labels images have, 0 and 1, (N, L) float."""
    rows = [[float(name in had) for name in classes] for had in having]
    return torch.tensor(rows).reshape(len(rows), len(classes))


def labelled_splits(root: Path, reading: Reading) -> Splits:
    """Train, val and test of ROOT/labels.csv and the images that it names."""
    check_root(root, f"{NAME} and the images that it names")
    table = read_label_table(root / NAME)
    _refuse_files(root, table)
    check_dicom([row.file for row in table.rows])
    listed = [ImageFile(row.file, row.split, "", group=row.patient) for row in table.rows]
    scanned = scan(root, listed, on_progress=reading.on_progress)
    having = {row.file: row.labels for row in table.rows}
    members = _members(table, scanned.files, having, reading)
    placed = [file for files in members.values() for file in files]
    found = find_duplicates(placed)
    report_duplicates(found, allow_leaks=reading.allow_leaks)
    problems = {**_lacking(table, members, having), "the same image twice within a split": found.repeats}
    train, val, test = (
        LabelledImages(
            root, files, having=having, classes=table.labels, size=reading.size, cache=reading.cache
        )
        for files in members.values()
    )
    known = {what: tuple(names) for what, names in problems.items() if names}
    return Splits(train, val, test, skipped=scanned.skipped, leaks=found.leaks, problems=known)


def _refuse_files(root: Path, table: LabelTable) -> None:
    for row in table.rows:
        if not is_image(row.file):
            endings = ", ".join(IMAGE_ENDINGS)
            raise UserError(
                f"{table.path}, line {row.line}: {row.file} is no image by its ending ({endings})"
            )
    missing = [f"{row.file} (line {row.line})" for row in table.rows if not (root / row.file).is_file()]
    if missing:
        raise UserError(f"{table.path} names {len(missing)} files that are not there: {some(missing)}")


def _members(
    table: LabelTable,
    files: Sequence[ImageFile],
    having: Mapping[str, frozenset[str]],
    reading: Reading,
) -> dict[str, list[ImageFile]]:
    """The files of every split, as the table says or drawn."""
    members: dict[str, list[ImageFile]] = {"train": [], "val": [], "test": []}
    if table.has_splits:
        for file in files:
            members[file.split].append(file)
    else:
        members["test"] = share_by_label(files, having, fraction=TEST_FRACTION, seed=(reading.seed, 1))
        members["train"] = _without(files, members["test"])
    if not members["val"]:
        train = members["train"]
        members["val"] = share_by_label(train, having, fraction=reading.val_fraction, seed=(reading.seed,))
        members["train"] = _without(train, members["val"])
    for split, found in members.items():
        if not found:
            raise UserError(f"{table.path} leaves no readable image for {split}; add images")
    return members


def _without(files: Iterable[ImageFile], taken: Iterable[ImageFile]) -> list[ImageFile]:
    names = {file.name for file in taken}
    return [file for file in files if file.name not in names]


def share_by_label(
    files: Sequence[ImageFile],
    having: Mapping[str, frozenset[str]],
    *,
    fraction: float,
    seed: Sequence[int],
) -> list[ImageFile]:
    """About a `fraction` of the images of every label, and of those without any, in groups that stay whole.

    The rarest label chooses first (Sechidis et al., 2011, in short): a later one counts what it has already.
    Of a label with two groups or more at least one is taken and one stays.
    """
    random = np.random.default_rng(list(seed))
    groups = together(files)
    groups = [groups[number] for number in random.permutation(len(groups))]
    had = [[having[file.name] for file in group] for group in groups]
    labels = set[str]().union(*(one for group in had for one in group))
    counted: dict[str | None, list[int]] = {
        name: [sum(name in one for one in group) for group in had] for name in labels
    }
    counted[None] = [sum(not one for one in group) for group in had]  # images without a finding
    state = [0] * len(groups)  # 1: set aside, -1: stays
    for name in sorted(counted, key=lambda name: (sum(counted[name]), str(name))):
        _share(counted[name], state, fraction)
    taken = [file for group, where in zip(groups, state, strict=True) if where == 1 for file in group]
    return sorted(taken, key=lambda file: file.name)


def _share(counts: Sequence[int], state: list[int], fraction: float) -> None:
    """Decide the groups of one label that no rarer one has decided."""
    wanted = max(1, round(fraction * sum(counts)))
    got = sum(count for count, where in zip(counts, state, strict=True) if where == 1)
    kept = any(count and where == -1 for count, where in zip(counts, state, strict=True))
    free = sorted((n for n, count in enumerate(counts) if count and not state[n]), key=counts.__getitem__)
    for place, number in enumerate(free):
        last = place == len(free) - 1 and not kept
        state[number] = 1 if got < wanted and not last else -1
        got += counts[number] * (state[number] == 1)


def _lacking(
    table: LabelTable, members: Mapping[str, Sequence[ImageFile]], having: Mapping[str, frozenset[str]]
) -> dict[str, list[str]]:
    """Labels that a split has no image with; in the training images that is an error."""
    absent = {
        split: [name for name in table.labels if not any(name in having[file.name] for file in files)]
        for split, files in members.items()
    }
    if absent["train"]:
        raise UserError(
            f"{table.path}: no training image has {some(absent['train'])}; add images with it, or remove it"
        )
    for split in ("val", "test"):
        if absent[split]:
            _log.warning("labels without an image in %s: %s", split, some(absent[split]))
    return {f"labels without an image in {split}": absent[split] for split in ("val", "test")}
