"""The answers to many image files in one table, made batch by batch so that an interrupted run goes on.

Whole batches are kept, so batches are the same whether a run was interrupted or not: a network's last digit
may depend on the other images of a batch, and the finished file must be the same. Only where images came or
changed in between can a last digit differ from that of a run that was not interrupted.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dprotonet.data.suffixes import check_dicom
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.trained.answered_files import AnsweredFile, answered_together, batches_of
from dprotonet.experiment.trained.prediction_table import (
    Row,
    check_table,
    label_columns,
    label_row,
    table_columns,
    table_row,
    write_table,
)
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.trained.unfinished_table import UnfinishedTable
from dprotonet.files import remove_unfinished
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.training.processes import Group
from dprotonet.version import __version__

_SILENT = {"network", "folder", "prototypes", "part_names", "places"}  # of a model: in no row of a table


@dataclass(frozen=True)
class TableSettings:
    """How a table is made: images per forward pass, likeliest classes per row, coverage of sets."""

    batch_size: int = 32
    likely: int = 3
    coverage: float | None = None  # None: no sets


@dataclass
class TableSummary:
    """What stands in a finished table."""

    images: int = 0
    kept: int = 0  # rows that an earlier, interrupted run had made
    dropped: int = 0  # other rows of it: the file has changed since, or is not named any more
    unfamiliar: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)  # file and reason


def predict_files(
    model: TrainedModel,
    paths: Sequence[Path],
    out: Path,
    *,
    settings: TableSettings | None = None,
    overwrite: bool = False,
    on_progress: Progress | None = None,
    group: Group | None = None,
) -> TableSummary:
    """Write the table `out`, .csv or .parquet; goes on where a run with the same model and settings stopped.

    Files that are new or have changed since are predicted then, and the rows of the others are kept. Of
    several processes the main one writes the table and has the summary.
    """
    group = group or Group()
    chosen = settings or TableSettings()
    columns = _columns(model, chosen)
    table = UnfinishedTable(out, _basis(model, chosen), len(columns))
    check_table(out, overwrite=overwrite)
    check_dicom([str(path) for path in paths])
    model.check_coverage(chosen.coverage)
    with claimed(out):
        stamps = [file_stamp(path) for path in paths]
        old = group.of_main(lambda: _begun(table, overwrite=overwrite)) or set()
        missing = {path: stamp for path, stamp in zip(paths, stamps, strict=True) if stamp not in old}
        for count in _append(table, model, missing, chosen, group):
            if on_progress is not None:
                on_progress(len(paths) - len(missing) + count, len(paths))
        if not group.is_main:
            return TableSummary()
        write_table(out, columns, table.rows(stamps))
        summary = _summary(columns, table.rows(stamps))
        table.remove()
    return replace(summary, kept=sum(map(old.__contains__, stamps)), dropped=len(old.difference(stamps)))


def _columns(model: TrainedModel, settings: TableSettings) -> list[str]:
    if model.several_labels:
        return label_columns(model.classes)
    return table_columns(min(settings.likely, len(model.classes)), settings.coverage)


def _begun(table: UnfinishedTable, *, overwrite: bool) -> set[str]:
    """Stamps of the rows that are there already."""
    remove_unfinished(table.out.parent, of=table.out.name)
    table.begin(overwrite=overwrite)
    return set(table.places)


def _append(
    table: UnfinishedTable,
    model: TrainedModel,
    missing: Mapping[Path, str],
    settings: TableSettings,
    group: Group,
) -> Iterator[int]:
    """The rows of these files, each with its stamp; yields how many there are after each batch."""
    count, classes = 0, min(settings.likely, len(model.classes))

    def stamped(item: AnsweredFile) -> tuple[str, Row]:
        if model.several_labels:
            return missing[item.path], label_row(item, model.classes)
        return missing[item.path], table_row(item, classes, settings.coverage)

    batches = batches_of(list(missing), settings.batch_size)
    for rows in answered_together(model, batches, group, stamped):
        table.append(rows)
        count += len(rows)
        yield count


def _summary(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> TableSummary:
    summary = TableSummary()
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        summary.images += 1
        summary.unfamiliar += cells["familiar"] is False
        if cells["error"] is not None:
            summary.unreadable[cells["file"]] = cells["error"]
    return summary


def _basis(model: TrainedModel, settings: TableSettings) -> Mapping[str, Any]:
    """All that rows depend on beside their files, by the words for it in a message."""
    return {
        "model": model_digest(model),
        "device": str(model.network.head.weight.device),
        "version of dprotonet": __version__,
        "--batch-size": settings.batch_size,
        "--classes": settings.likely,
        "--coverage": settings.coverage,
    }


def model_digest(model: TrainedModel) -> str:
    """Another one for weights, classes, thresholds or settings that would answer otherwise."""
    said = {name: repr(value) for name, value in sorted(vars(model).items()) if name not in _SILENT}
    return tensor_digest(dict(sorted(model.network.state_dict().items())), beginning=json.dumps(said))


def file_stamp(path: Path) -> str:
    """Another one for another name, or a file that has changed since."""
    try:
        found = path.stat()
        state = f"{found.st_size} {found.st_mtime_ns}"
    except OSError:
        state = "not there"
    return blake2b(os.fsencode(path) + b"\0" + state.encode(), digest_size=12).hexdigest()
