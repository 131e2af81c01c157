"""The answers to many image files in one table, made batch by batch so that an interrupted run goes on.

Batches are those of the whole list, whether a run was interrupted or not: a network's last digit may depend
on the other images of a batch, and the finished file must be the same.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dprotonet.data.suffixes import check_dicom
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.trained.answered_files import answered_files, batches_of
from dprotonet.experiment.trained.prediction_table import check_table, table_columns, table_row, write_table
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.trained.unfinished_table import UnfinishedTable
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.version import __version__

_SILENT = {"network", "folder", "prototypes", "part_names", "places"}  # of a model: in no row of a table


@dataclass(frozen=True)
class TableSettings:
    """How a table is made: images per forward pass, and the number of likeliest classes per row."""

    batch_size: int = 32
    likely: int = 3


@dataclass
class TableSummary:
    """What stands in a finished table."""

    images: int = 0
    kept: int = 0  # rows that an earlier, interrupted run had made
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
) -> TableSummary:
    """Write the table `out`, .csv or .parquet; goes on where a run with the same model and images stopped."""
    chosen = settings or TableSettings()
    check_table(out, overwrite=overwrite)
    check_dicom([str(path) for path in paths])
    columns = table_columns(min(chosen.likely, len(model.classes)))
    batches = batches_of(paths, chosen.batch_size)
    table = UnfinishedTable(out, _basis(model, paths, chosen), [len(batch) for batch in batches])
    with claimed(out):
        done = table.begin(overwrite=overwrite)
        kept = sum(table.batches[:done])
        for count in _append(table, model, batches[done:], chosen.likely):
            if on_progress is not None:
                on_progress(kept + count, len(paths))
        write_table(out, columns, table.rows())
        summary = _summary(columns, table.rows(), kept)
        table.remove()
    return summary


def _append(
    table: UnfinishedTable, model: TrainedModel, batches: Iterable[Sequence[Path]], likely: int
) -> Iterator[int]:
    """The rows of these batches; yields how many there are after each."""
    count, classes = 0, min(likely, len(model.classes))
    for answered in answered_files(model, batches):
        table.append([table_row(item, classes) for item in answered])
        count += len(answered)
        yield count


def _summary(columns: Sequence[str], rows: Iterable[Sequence[Any]], kept: int) -> TableSummary:
    summary = TableSummary(kept=kept)
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        summary.images += 1
        summary.unfamiliar += cells["familiar"] is False
        if cells["error"] is not None:
            summary.unreadable[cells["file"]] = cells["error"]
    return summary


def _basis(model: TrainedModel, paths: Sequence[Path], settings: TableSettings) -> Mapping[str, Any]:
    """All that rows depend on, by the words for it in a message."""
    return {
        "model": model_digest(model),
        "list of images": images_digest(paths),
        "device": str(model.network.head.weight.device),
        "version of dprotonet": __version__,
        "--batch-size": settings.batch_size,
        "--classes": settings.likely,
    }


def model_digest(model: TrainedModel) -> str:
    """Another one for weights, classes, thresholds or settings that would answer otherwise."""
    said = {name: repr(value) for name, value in sorted(vars(model).items()) if name not in _SILENT}
    return tensor_digest(dict(sorted(model.network.state_dict().items())), beginning=json.dumps(said))


def images_digest(paths: Sequence[Path]) -> str:
    """Another one for other names, another order, or a file that has changed since."""
    digest = blake2b(digest_size=16)
    for path in paths:
        digest.update(os.fsencode(path) + repr(_state(path)).encode() + b"\0")
    return digest.hexdigest()


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
