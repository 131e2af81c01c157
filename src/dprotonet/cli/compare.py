"""`dprotonet compare`: every explainer on the same images, in one table."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed
from dprotonet.cli.source import AllowLeaks, AnyImages, Device, Json, RunOrTimm, Split, TaskName, images_of
from dprotonet.errors import ComputationError, UserError
from dprotonet.interpretation.explainers import described
from dprotonet.metrics.judges import described as described_judges
from dprotonet.metrics.judges import families

if TYPE_CHECKING:
    from rich.table import Table as Drawn

    from dprotonet.data.base import ImageData
    from dprotonet.experiment.compare.run import Comparison, Failure
    from dprotonet.experiment.compare.table import Table
    from dprotonet.experiment.trained.classifier import Classifier
    from dprotonet.metrics.measures import Measure

PLACES = ("DICE", "IOU", "PPV", "sensitivity", "energy", "pointing", "part")
_METHODS_HELP = (
    f"Comma between methods: {described()}; mdm:PRESET; mdm-prototype[:PRESET] (prototype networks, at the "
    "prototype that counts most); file:FOLDER (maps of your own, NAME.npy for every image). Random, centre "
    "and fake are added as controls."
)
_JUDGES_HELP = (
    f"Comma between further judges, or all: {described_judges()}. Columns are then grouped by what they "
    "ask, and ‡ marks what a method optimises itself."
)
_ROOMY = 130  # columns of a terminal in which intervals have room


@dataclass(frozen=True)
class CompareArguments:
    """How faithful and how well placed the heatmaps of several methods are, on the same images."""

    model: RunOrTimm
    out: Path
    """Folder for tables and pictures; what was measured is kept there, so the same command goes on after a
    stop."""
    data: AnyImages = None
    split: Split = "test"
    methods: Annotated[str, tyro.conf.arg(help=_METHODS_HELP)] = "mdm,gradcam,gradcam++,scorecam,ablationcam"
    judges: Annotated[str, tyro.conf.arg(help=_JUDGES_HELP)] = ""
    limit: int | None = None
    """So many images, drawn from the split; always the same ones (default: all)."""
    mosaic: bool = False
    """Are maps about the class? Four images side by side, asked for the class of each; truth is its quarter.
    --limit counts such questions."""
    top: float = 0.2
    """Share of the pixels that is compared with the truth; the paper takes 0.5 for medical images."""
    keep: float = 0.5
    """Share of the pixels that AD and AI of the percentile form keep."""
    steps: int = 28
    """Steps of deletion and insertion; 224 at 224 pixels is RISE's own."""
    space: Literal["normalised", "pixels"] = "normalised"
    """Hidden pixels are zero as the network sees them, or black. It changes AD threefold."""
    task: TaskName = None
    target: Literal["up", "down"] = "up"
    """Of a regression: explain what raises the value, or what lowers it."""
    json: Json = False
    allow_leaks: AllowLeaks = False
    device: Device = None


def main(words: list[str]) -> None:
    arguments = parsed(CompareArguments, words, command="compare")
    _check(arguments)
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.compare.files import save_comparison
    from dprotonet.experiment.compare.mosaics import mosaics_of
    from dprotonet.experiment.compare.table import Table
    from dprotonet.experiment.runs.claim import claimed
    from dprotonet.experiment.trained.classifier import Classifier
    from dprotonet.training.processes import Group

    group = Group.joined(arguments.device)
    classifier = Classifier.open(arguments.model, device=arguments.device, task=arguments.task)
    with claimed(arguments.out), Reporter(stderr_console()) as reporter:
        data = images_of(arguments, classifier, lambda done, total: reporter.advance("scan", done, total))
        if arguments.mosaic:
            data = mosaics_of(
                classifier, data, arguments.limit, lambda done, total: reporter.advance("tiles", done, total)
            )
        comparison = _comparison(arguments, classifier, data)
        failures: list[Failure] = []
        for progress in comparison.run(group):
            reporter.advance("comparing", progress.done, progress.total, progress.what)
            if progress.failure is not None:
                failures.append(progress.failure)
                print(f"dprotonet: {told(progress.failure)}", file=sys.stderr)
        failures = [failure for some in group.gathered(failures) for failure in some]
        if not group.is_main:
            return
        results = comparison.results(failures)
        content = save_comparison(comparison, results)
    if arguments.json:
        json.dump(content, sys.stdout, ensure_ascii=False, allow_nan=False)
        print()
    else:
        table = Table.of(results, comparison.protocol, network=classifier.name, methods=comparison.methods)
        _show(table, content)
    _complain_of_idle(content)


def _check(arguments: CompareArguments) -> None:
    check_out(arguments.out)
    if arguments.limit is not None and arguments.limit < 1:
        raise UserError(f"--limit is {arguments.limit}; it must be at least 1")
    if arguments.steps < 1:
        raise UserError(f"--steps is {arguments.steps}; it must be at least 1")
    _families(arguments)
    for name in ("top", "keep"):
        if not 0 < getattr(arguments, name) < 1:
            raise UserError(f"--{name} is {getattr(arguments, name)}; it is a share, between 0 and 1")


def _families(arguments: CompareArguments) -> tuple[str, ...]:
    try:
        return families([name.strip() for name in arguments.judges.split(",") if name.strip()])
    except ValueError as error:
        raise UserError(f"--judges: {error}") from None


def _comparison(arguments: CompareArguments, classifier: "Classifier", data: "ImageData") -> "Comparison":
    from dprotonet.experiment.compare.method import CONTROLS, method
    from dprotonet.experiment.compare.run import Comparison
    from dprotonet.metrics import measures
    from dprotonet.metrics.faithfulness import RiseProtocol

    names = dict.fromkeys([*method_names(arguments.methods), *CONTROLS])
    of_value = classifier.task.kind == "regression"
    if arguments.target == "down" and not of_value:
        raise UserError("--target down is for a regression; the predicted class is compared")
    asked = "of one tile of a mosaic" if arguments.mosaic else measures.PREDICTED
    return Comparison(
        classifier,
        data,
        [method(name, classifier) for name in names],
        arguments.out,
        protocol=measures.Protocol(
            RiseProtocol(steps=arguments.steps, space=arguments.space),
            keep=arguments.keep,
            top=arguments.top,
            asked=arguments.target if of_value else asked,
            of_value=of_value,
            judges=_families(arguments),
        ),
        limit=None if arguments.mosaic else arguments.limit,
    )


def method_names(text: str) -> list[str]:
    """At commas, each once; a `key=value` belongs to the method before it."""
    names: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    if not names:
        raise UserError("--methods names no method; for example --methods mdm,gradcam")
    return list(dict.fromkeys(names))


def told(failure: "Failure") -> str:
    """In one line, whatever an explainer says."""
    return " ".join(f"{failure.method} failed on {failure.image}: {failure.reason}".split())


def _complain_of_idle(content: dict[str, Any]) -> None:
    """A method without a single map is a failed computation, not a row of gaps."""
    empty = [row["method"] for row in content["rows"] if not row["images"]]
    if empty:
        raise ComputationError(f"{', '.join(empty)} explained no image; the table has the others")


def _show(table: "Table", content: dict[str, Any]) -> None:
    """Faithfulness, localisation and cost one below the other: side by side they fit no terminal."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    console.print(escape(content["network"]), style="bold", soft_wrap=True)
    for title, measures in (table.groups() or _usual(table)).items():
        if measures:
            console.print(_drawn(table, measures, title, roomy=console.width >= _ROOMY))
    console.print(_cost(table))
    console.print(escape(table.note()), style="dim")
    for kind, path in content["files"].items():
        console.print(f"{kind}: {path}", soft_wrap=True, markup=False, highlight=False)


def _usual(table: "Table") -> "dict[str, list[Measure]]":
    placed = [measure for measure in table.measures if measure.name in PLACES]
    faithful = [measure for measure in table.measures if measure.name not in PLACES]
    return {"faithfulness": faithful, "localisation": placed}


def _drawn(table: "Table", measures: "Sequence[Measure]", title: str, *, roomy: bool) -> "Drawn":
    from rich.markup import escape

    drawn = _empty(title, [f"{measure.name} {'↑' if measure.higher else '↓'}" for measure in measures])
    for row in table.rows:
        texts = ((measure, table.written(row, measure, "{} ± {}" if roomy else "{}")) for measure in measures)
        cells = [f"[bold]{text}[/bold]" if table.is_best(row, measure) else text for measure, text in texts]
        drawn.add_row(escape(table.named(row)), *cells)
    return drawn


def _cost(table: "Table") -> "Drawn":
    from rich.markup import escape

    drawn = _empty("cost of an image", ["seconds", "forward passes", "backward passes"])
    for row in table.rows:
        if any(row.passes):  # controls and maps of your own cost nothing
            drawn.add_row(escape(row.method), f"{row.seconds:.2f}", *map(str, row.passes))
    return drawn


def _empty(title: str, heads: list[str]) -> "Drawn":
    """Where room is short, names of methods go on in the next line: cut, they could not be told apart."""
    from rich.table import Table as Drawn

    drawn = Drawn(title=title, title_justify="left")
    drawn.add_column("method", overflow="fold")
    for head in heads:
        drawn.add_column(head, justify="right", no_wrap=True)
    return drawn
