"""labels.csv: which findings each image of a folder has. One row per image, and nothing is guessed.

Either `file,labels`, several labels apart by semicolons and none where the cell is empty, or `file` and one
column of 0 and 1 for each label. Optional: `split` (train, val, test) and `patient`, whose images stay in one
split. Every error names its line.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dprotonet.data.problems import some, table_text
from dprotonet.errors import UserError

NAME = "labels.csv"
_FILE, _LABELS, _SPLIT, _PATIENT = "file", "labels", "split", "patient"
_SPLITS = ("train", "val", "test")
_FORMS = "file,labels (finding;finding) or file and one column of 0 and 1 for each label"


@dataclass(frozen=True)
class LabelRow:
    """One line: an image by its path below the folder, what it has, and where it belongs ("" if unsaid)."""

    line: int
    file: str
    labels: frozenset[str]
    split: str = ""
    patient: str = ""


@dataclass(frozen=True)
class LabelTable:
    """All rows, and the labels in their order: that of the columns, or of the alphabet."""

    path: Path
    labels: tuple[str, ...]
    rows: tuple[LabelRow, ...]

    @property
    def has_splits(self) -> bool:
        return any(row.split for row in self.rows)


def read_label_table(path: Path) -> LabelTable:
    """The table; UserError for whatever it should not have."""
    if not path.is_file():
        raise UserError(f"{path} is missing; it must be a table of {_FORMS}")
    with table_text(path) as text:
        lines = csv.reader(text)
        header = [cell.strip() for cell in next(lines, [])]
        columns = _columns(path, header)
        rows = tuple(_rows(path, header, columns, lines, lambda: lines.line_num))
    if not rows:
        raise UserError(f"{path} names no image")
    _refuse_repeats(path, rows)
    _refuse_torn(path, rows)
    labels = columns or tuple(sorted(set().union(*(row.labels for row in rows))))
    _refuse_labels(path, labels, rows)
    return LabelTable(path, labels, rows)


def _columns(path: Path, header: Sequence[str]) -> tuple[str, ...]:
    """The labels that are columns; none where one column lists them."""
    for name in header:
        if not name:
            raise UserError(f"{path}, line 1: a column has no name")
        if header.count(name) > 1:
            raise UserError(f"{path}, line 1: the column '{name}' comes twice")
    if _FILE not in header:
        raise UserError(f"{path}, line 1: no column '{_FILE}'; found: {some(header)}; give {_FORMS}")
    others = tuple(name for name in header if name not in (_FILE, _LABELS, _SPLIT, _PATIENT))
    if _LABELS in header and others:
        raise UserError(
            f"{path}, line 1: beside '{_LABELS}' a table may have {_SPLIT} and {_PATIENT}; "
            f"remove {some(others)}"
        )
    if _LABELS not in header and not others:
        raise UserError(f"{path}, line 1: no column of labels; give {_FORMS}")
    return others


def _rows(
    path: Path,
    header: Sequence[str],
    columns: Sequence[str],
    lines: Iterator[list[str]],
    line: Callable[[], int],
) -> Iterator[LabelRow]:
    for values in lines:
        if not any(value.strip() for value in values):
            continue
        if len(values) != len(header):
            raise UserError(f"{path}, line {line()}: {len(values)} cells, and the header has {len(header)}")
        cells = dict(zip(header, map(str.strip, values), strict=True))
        where = f"{path}, line {line()}"
        found = _flagged(where, cells, columns) if columns else _listed(where, cells[_LABELS])
        yield LabelRow(
            line(), _file(where, cells[_FILE]), found, _split(where, cells), cells.get(_PATIENT, "")
        )


def _file(where: str, cell: str) -> str:
    name = PurePosixPath(cell.replace("\\", "/"))
    if not cell or name.is_absolute() or ".." in name.parts:
        raise UserError(f"{where}: file is '{cell}'; give a path below the folder")
    return str(name)


def _flagged(where: str, cells: Mapping[str, str], columns: Sequence[str]) -> frozenset[str]:
    for name in columns:
        if cells[name] not in ("0", "1"):
            raise UserError(
                f"{where}: {name} is '{cells[name]}'; it must be 0 or 1 (decide uncertain ones, or leave "
                "these images out)"
            )
    return frozenset(name for name in columns if cells[name] == "1")


def _listed(where: str, cell: str) -> frozenset[str]:
    names = [name.strip() for name in cell.split(";")] if cell else []
    if "" in names or len(set(names)) < len(names):
        raise UserError(f"{where}: labels are '{cell}'; one is empty or comes twice")
    return frozenset(names)


def _split(where: str, cells: Mapping[str, str]) -> str:
    if _SPLIT not in cells:
        return ""
    if cells[_SPLIT] not in _SPLITS:
        raise UserError(f"{where}: split is '{cells[_SPLIT]}'; it must be train, val or test")
    return cells[_SPLIT]


def _refuse_repeats(path: Path, rows: Iterable[LabelRow]) -> None:
    seen: dict[str, int] = {}
    for row in rows:
        if row.file in seen:
            raise UserError(f"{path}, line {row.line}: {row.file} is in line {seen[row.file]} already")
        seen[row.file] = row.line


def _refuse_torn(path: Path, rows: Iterable[LabelRow]) -> None:
    """Images of one patient in two splits would make results too good."""
    first: dict[str, LabelRow] = {}
    for row in rows:
        other = first.setdefault(row.patient, row)
        if row.patient and row.split != other.split:
            raise UserError(
                f"{path}, line {row.line}: patient {row.patient} is in {row.split} here and in {other.split} "
                f"in line {other.line}; all images of a patient belong to one split"
            )


def _refuse_labels(path: Path, labels: Sequence[str], rows: Sequence[LabelRow]) -> None:
    """A label that no image has, or that all have, cannot be learned."""
    for name in labels:
        count = sum(name in row.labels for row in rows)
        if not count or count == len(rows):
            who = "all images have" if count else "no image has"
            raise UserError(f"{path}: {who} the label '{name}', so it cannot be learned; remove it")
    if not labels:
        raise UserError(f"{path}: no image has any label")
