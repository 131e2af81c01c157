"""`dprotonet evaluate` of a run whose images may have several labels: a row for every label."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dprotonet.cli.source import DataSource, data_of
from dprotonet.errors import UserError
from dprotonet.launch import is_main
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model


class EvaluateRun(DataSource, Protocol):
    """What the command says."""

    @property
    def run(self) -> Path: ...
    @property
    def out(self) -> Path | None: ...
    @property
    def split(self) -> str: ...
    @property
    def positive(self) -> str | None: ...
    @property
    def json(self) -> bool: ...
    @property
    def workers(self) -> int: ...


def evaluate_several(arguments: EvaluateRun, model: "Model") -> None:
    """Measure, save and show."""
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.evaluation.several_labels import evaluate_labels, save_label_evaluation

    if arguments.positive is not None:
        raise UserError("--positive is for runs of two classes; here every label is measured for itself")
    data = data_of(arguments, model.config.data)
    with Reporter(stderr_console()) as reporter:
        evaluation = evaluate_labels(
            model,
            data,
            split=arguments.split,
            workers=arguments.workers,
            on_scan=lambda done, total: reporter.advance("scan", done, total),
            on_batch=lambda done, total: reporter.advance("evaluating", done, total),
        )
    if not is_main():
        return
    folder = arguments.out or arguments.run / "evaluation"
    place = save_label_evaluation(evaluation, folder, data=data.data, network=model.network)
    summary = {"run": str(arguments.run), "data": data.data, **evaluation.summary(), "file": str(place)}
    if arguments.json:
        json.dump(summary, sys.stdout, ensure_ascii=False)
        print()
    else:
        print_labels(summary)


def print_labels(summary: dict[str, Any]) -> None:
    """The numbers as two tables on stdout."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title=escape(f"{summary['run']} on {summary['data']} ({summary['split']})"))
    for name in (
        "label",
        "images",
        "AP",
        "chance",
        "AUROC",
        "95 %",
        "F1",
        "found",
        "denied",
    ):
        table.add_column(name, justify="left" if name == "label" else "right")
    for name, one in summary["per_label"].items():
        low, high = one["auroc_low"], one["auroc_high"]
        between = "" if low is None else f"{low:.3f}–{high:.3f}"
        cells = (_number(one["average_precision"]), _number(one["frequency"]), _number(one["auroc"]), between)
        rest = (_number(one["f1"]), _share(one["found"]), _share(one["rightly_denied"]))
        table.add_row(escape(name), str(one["images_with"]), *cells, *rest)
    table.add_section()
    chance = _number(summary["chance"]["mean_average_precision"])
    precision, area = _number(summary["mean_average_precision"]), _number(summary["mean_auroc"])
    table.add_row(
        "mean", str(summary["images"]), precision, chance, area, "", _number(summary["mean_f1"]), "", ""
    )
    console.print(table)
    console.print(
        "AP: average precision, beside what chance gives; found: share of images with the label that are "
        "called so at 50 %; denied: of those without it that are not",
        soft_wrap=True,
        highlight=False,
    )
    right, every = percent(summary["label_accuracy"]), percent(summary["all_labels_right"])
    console.print(f"labels right: {right}; images with all labels right: {every}", highlight=False)
    console.print("probabilities are not calibrated (calibration is for one class per image)", soft_wrap=True)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "" if value is None else percent(value)
