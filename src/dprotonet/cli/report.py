"""`dprotonet report`: a run as one HTML file that can be mailed, printed and read without a network."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dprotonet.cli.explain_arguments import PresetName, chosen_preset
from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model
    from dprotonet.progress import NamedProgress
    from dprotonet.report.content import Report
    from dprotonet.report.options import AtHand, ReportOptions


@dataclass(frozen=True)
class ReportArguments:
    """Write a report as one HTML file: the model, its accuracy, its prototypes, and explained predictions."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The file to write (default: RUN/report.html); an earlier report there is replaced."""
    data: str | None = None
    """Another data set with the same classes, or none to use the run folder only (default: the data that the
    run was trained on, or none if that is gone)."""
    compare: Path | None = None
    """The --out folder of dprotonet compare, for its tables (default: one inside the run folder)."""
    images: int = 2
    """Number of images to explain of each kind: most certain, least certain, mistakes."""
    top: int = 3
    """Number of prototypes to show per image; the others are summed."""
    heatmaps: Literal["stored", "shown", "all"] = "shown"
    """Which heatmaps to use: only stored ones, also those of the explained images, or also those of all
    prototypes (some seconds each, once per run)."""
    preset: PresetName = "fast"
    """Preset of the decoder; fast whatever the run's recipe is, because a page has many maps and the paper's
    decoder takes minutes for each. The page says which was used."""
    iterations: int | None = None
    """Steps of the decoder (default: the preset's)."""
    audience: Literal["general", "clinical"] = "general"
    """For whom: clinical leads with warnings, probabilities and limits, in words for doctors."""
    overwrite: bool = False
    """Replace the file even if it is not a report."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    allow_leaks: bool = False
    """Go on even if the same image is in two splits of --data."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(ReportArguments, words, command="report")
    _check(arguments)
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.model import Model
    from dprotonet.report.write import check_target

    out = arguments.out or arguments.run / "report.html"
    check_target(out, overwrite=arguments.overwrite)
    model = Model.load(arguments.run, device=arguments.device)
    with Reporter(stderr_console()) as reporter:
        content = written(model, out, _wishes(arguments), on_progress=reporter.advance)
    if arguments.json:
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(content)


def written(
    model: "Model",
    out: Path,
    wishes: "ReportOptions",
    *,
    on_progress: "NamedProgress",
    at_hand: "AtHand | None" = None,
) -> dict[str, Any]:
    """Gather, render and write a report; its path and headline numbers."""
    from datetime import UTC, datetime

    from dprotonet.report.gather import gather
    from dprotonet.report.page import render
    from dprotonet.report.write import write_report

    made = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC")
    report = gather(model, wishes, made=made, at_hand=at_hand, on_progress=on_progress)
    write_report(render(report), out)
    return {"report": str(out), "bytes": out.stat().st_size, **_headline(report)}


def _check(arguments: ReportArguments) -> None:
    if arguments.images < 0:
        raise UserError(f"--images is {arguments.images}; it must be at least 0")
    if arguments.top < 1:
        raise UserError(f"--top is {arguments.top}; it must be at least 1")


def _wishes(arguments: ReportArguments) -> "ReportOptions":
    from dprotonet.report.options import ReportOptions

    return ReportOptions(
        data=arguments.data,
        allow_leaks=arguments.allow_leaks,
        compare=arguments.compare,
        sure=arguments.images,
        unsure=arguments.images,
        mistakes=arguments.images,
        top=arguments.top,
        preset=chosen_preset(arguments.preset, arguments.iterations),
        heatmaps=arguments.heatmaps,
        audience=arguments.audience,
    )


def _headline(report: "Report") -> dict[str, Any]:
    found = report.performance
    return {
        "prototypes": sum(len(group.cards) for group in report.classes),
        "accuracy": None if found is None else found.accuracy,
        "balanced_accuracy": None if found is None else found.balanced_accuracy,
        "auroc": None if found is None else found.auroc,
        "mistakes": None if report.mistakes is None else report.mistakes.total,
        "missing": list(report.missing),
    }


def _show(content: dict[str, Any]) -> None:
    for text in content["missing"]:
        print(f"not in the report: {text}", file=sys.stderr)
    if content["accuracy"] is not None:
        print(f"accuracy {percent(content['accuracy'])}", end=", ")
        print(f"balanced accuracy {percent(content['balanced_accuracy'])}")
    print(f"report: {content['report']} ({content['bytes'] / 1e6:.1f} MB)")
