"""`dprotonet predict --out FILE.csv`: a table of any number of images, with a bar, going on after a stop."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dprotonet.cli.images import complain_if_none, named_images
from dprotonet.errors import UserError
from dprotonet.launch import is_main

if TYPE_CHECKING:
    from dprotonet.experiment.trained.predict_files import TableSummary

_TABLES = (".csv", ".parquet")
_OTHER_TABLES = (".tsv", ".xls", ".xlsx", ".json", ".jsonl", ".pq", ".feather", ".arrow", ".txt")


class TableArguments(Protocol):
    """What the command says of a table."""

    @property
    def run(self) -> Path: ...
    @property
    def images(self) -> tuple[Path, ...]: ...
    @property
    def out(self) -> Path | None: ...
    @property
    def overwrite(self) -> bool: ...
    @property
    def classes(self) -> int: ...
    @property
    def coverage(self) -> float | None: ...
    @property
    def json(self) -> bool: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def device(self) -> str | None: ...


def is_table(out: Path) -> bool:
    """Whether --out names a table and not a folder; other kinds of table are refused."""
    if out.suffix.lower() in _OTHER_TABLES and not out.is_dir():
        raise UserError(f"--out {out}: tables are written as {' or '.join(_TABLES)}")
    return out.suffix.lower() in _TABLES


def predict_table(arguments: TableArguments) -> None:
    """Write the table; how many images could not be read is said at the end."""
    from dprotonet.experiment.trained.prediction_table import check_table

    assert arguments.out is not None
    check_table(arguments.out, overwrite=arguments.overwrite)
    summary = _written(arguments, arguments.out)
    if not is_main():
        return
    if arguments.json:
        json.dump({"table": str(arguments.out), **asdict(summary)}, sys.stdout, ensure_ascii=False)
        print()
    _tell(summary, arguments.out)
    complain_if_none(range(summary.images - len(summary.unreadable)), summary.unreadable)


def _written(arguments: TableArguments, out: Path) -> "TableSummary":
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.trained.predict_files import TableSettings, predict_files
    from dprotonet.experiment.trained.trained_model import TrainedModel
    from dprotonet.training.processes import Group

    group = Group.joined(arguments.device)
    model = TrainedModel.load(arguments.run, device=arguments.device, several_labels=True)
    model.check_coverage(arguments.coverage)
    paths = named_images(arguments.images)
    with Reporter(stderr_console()) as reporter:
        return predict_files(
            model,
            paths,
            out,
            settings=TableSettings(arguments.batch_size, arguments.classes, arguments.coverage),
            overwrite=arguments.overwrite,
            on_progress=lambda done, total: reporter.advance("predicting", done, total),
            group=group,
        )


def _tell(summary: "TableSummary", out: Path) -> None:
    from dprotonet.data.problems import some

    kept = f", {summary.kept} of them from an earlier, interrupted run" if summary.kept else ""
    print(f"predictions of {summary.images} images: {out}{kept}", file=sys.stderr)
    if summary.dropped:
        said = "rows of the interrupted run left out (file changed, or not named any more)"
        print(f"{said}: {summary.dropped}", file=sys.stderr)
    if summary.unfamiliar:
        print(f"unlike the training images: {summary.unfamiliar}", file=sys.stderr)
    if broken := summary.unreadable:
        print(f"could not be read: {len(broken)} of {summary.images}: {some(broken)}", file=sys.stderr)
