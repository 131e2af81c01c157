"""`dprotonet evaluate`: how good a run is on a split."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprotonet.cli.evaluate_several import evaluate_several
from dprotonet.cli.parse import parsed
from dprotonet.cli.source import AllowLeaks, Json, RunFolderPath, SameClasses, Split, data_of
from dprotonet.launch import is_main
from dprotonet.percent import percent

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class EvaluateArguments:
    """Measure accuracy, balanced accuracy, recall, confusion matrix, calibration; AUROC for two classes.

    Of a run with several labels per image: mean average precision, and AUROC and F1 of every label.
    """

    run: RunFolderPath
    data: SameClasses = None
    split: Split = "test"
    out: Path | None = None
    """Folder for the results (default: RUN/evaluation)."""
    positive: str | None = None
    """The positive one of two classes, for sensitivity (default: the one whose name does not mean healthy,
    such as normal or no finding; if that does not decide, the second, alphabetically for folders)."""
    json: Json = False
    allow_leaks: AllowLeaks = False
    workers: int = 0
    """Data-loading processes; they change the speed, never the result."""


def main(words: list[str]) -> None:
    arguments = parsed(EvaluateArguments, words, command="evaluate")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.evaluation.evaluation import evaluate_model, reliability_path, save_evaluation
    from dprotonet.experiment.model import Model

    console = stderr_console()
    model = Model.load(arguments.run, several_labels=True)
    if model.several_labels:
        return evaluate_several(arguments, model)
    data = data_of(arguments, model.config.data)
    with Reporter(console) as reporter:
        evaluation = evaluate_model(
            model,
            data,
            split=arguments.split,
            workers=arguments.workers,
            positive=arguments.positive,
            on_scan=lambda done, total: reporter.advance("scan", done, total),
            on_batch=lambda done, total: reporter.advance("evaluating", done, total),
        )
    if not is_main():
        return
    folder = arguments.out or arguments.run / "evaluation"
    picture = save_evaluation(evaluation, folder, data=data.data, network=model.network)
    summary = {"run": str(arguments.run), "data": data.data, **evaluation.summary(), "picture": str(picture)}
    diagram = reliability_path(folder, arguments.split)
    summary["reliability_picture"] = str(diagram) if diagram.is_file() else None
    if arguments.json:
        json.dump(summary, sys.stdout, ensure_ascii=False)
        print()
    else:
        print_summary(summary)


def print_summary(summary: dict[str, Any]) -> None:
    """The numbers as a table on stdout."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(f"{summary['run']} on {summary['data']} ({summary['split']})"), min_width=40)
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("images", str(summary["images"]))
    for name, said in _measures(summary["positive"]).items():
        if summary[name] is not None:
            table.add_row(escape(said), percent(summary[name]) if name != "auroc" else f"{summary[name]:.4f}")
    _add_calibration(table, summary)
    table.add_section()
    for name, recall in summary["per_class"].items():
        table.add_row(escape(f"recall of {name}"), "no images" if recall is None else percent(recall))
    console = Console()
    console.print(table)
    if summary["positive"] is not None:
        said = f"positive class: {summary['positive']} ({summary['positive_reason']})"
        console.print(said, soft_wrap=True, markup=False, highlight=False)
    console.print(f"confusion matrix: {summary['picture']}", soft_wrap=True, markup=False)
    if summary.get("reliability_picture"):
        console.print(f"reliability diagram: {summary['reliability_picture']}", soft_wrap=True, markup=False)


def _add_calibration(table: "Table", summary: dict[str, Any]) -> None:
    """How true the stated probabilities are."""
    if not summary["images"]:
        return
    fitted = f"temperature {summary['temperature']:.3g}" if summary["calibrated"] else "not calibrated"
    table.add_section()
    table.add_row("probabilities", fitted)
    table.add_row("calibration error (ECE)", f"{summary['ece']:.4f}")
    chance = summary["ece_by_chance"]
    table.add_row("ECE expected by chance", f"{chance['mean']:.4f}, 19 in 20 below {chance['high']:.4f}")
    table.add_row("Brier score", f"{summary['brier']:.4f}")
    for share, right in summary["accuracy_at_coverage"].items():
        table.add_row(f"accuracy of the surest {percent(float(share), 0)}", percent(right))
    for share, sets in summary["class_sets"].items():
        said = f"{percent(sets['covered'])}, {sets['mean_size']:.2f} classes each"
        table.add_row(f"covered by sets for {percent(float(share), 0)}", said)


def _measures(positive: str | None) -> dict[str, str]:
    """Measures as people say them, with the class that the last two are about."""
    return {
        "accuracy": "accuracy",
        "balanced_accuracy": "balanced accuracy",
        "auroc": "auroc",
        "sensitivity": f"sensitivity (to {positive})",
        "specificity": f"specificity (for {positive})",
    }
