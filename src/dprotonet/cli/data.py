"""`dprotonet data check`: what a data set is made of, and what is wrong with it."""

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed
from dprotonet.data.problems import some
from dprotonet.data.suffixes import ignored_words
from dprotonet.errors import UserError
from dprotonet.percent import percent

if TYPE_CHECKING:
    from rich.console import Console

    from dprotonet.experiment.data_check import CheckedData, DataReport, Sizes

_SHOWN = 10
_USAGE = "usage: dprotonet data check SPEC [--out DIR] [--json]"


@dataclass(frozen=True)
class CheckArguments:
    """Check a data set: counts per class and split, sizes, truth, broken and missing files, leaks.

    Exit code 1 if an official file is missing or the same image is in two splits.
    """

    data: Annotated[str, tyro.conf.Positional]
    """As --data in train: birds, birds-findings, folder:PATH, labels:PATH, cub:PATH, cub-cropped:PATH,
    cars:PATH, rsna:PATH, palm:PATH."""
    out: Path = Path("data-check")
    """Folder for check.json and sheet.png."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"]):
        print(_USAGE + "\n\n`dprotonet data check --help` lists the options.")
        return 0
    if words[:1] != ["check"]:
        given = (
            f"'{words[0]}' is no command of dprotonet data" if words else "what shall be done with the data?"
        )
        raise UserError(f"{given}; {_USAGE}")
    arguments = parsed(CheckArguments, words[1:], command="data check")
    check_out(arguments.out)
    return _check(arguments)


def _check(arguments: CheckArguments) -> int:
    checked, content = _checked(arguments)
    if arguments.json:
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(checked.report, arguments.out if checked.splits is not None else None)
    return 1 if checked.report.failed else 0


def _checked(arguments: CheckArguments) -> "tuple[CheckedData, dict[str, object]]":
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.config import DataConfig
    from dprotonet.experiment.data_check import check_data_set, save_sheet
    from dprotonet.files import write_text

    with Reporter(stderr_console()) as reporter, _quiet_readers():
        checked = check_data_set(
            DataConfig(data=arguments.data), lambda done, total: reporter.advance("scan", done, total)
        )
        content = checked.report.content()
        if checked.splits is not None:
            save_sheet(checked.splits, arguments.out / "sheet.png")
            write_text(arguments.out / "check.json", json.dumps(content, ensure_ascii=False, indent=1))
    return checked, content


@contextmanager
def _quiet_readers() -> Iterator[None]:
    """The readers' warnings say what the report says too."""
    logger = logging.getLogger("dprotonet.data")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _show(report: "DataReport", out: Path | None) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if out is not None:
        _show_counts(report, console)
        _show_facts(report, console)
    for what, names in _findings(report):
        console.print(f"\n{what}: {len(names)}", style="bold")
        for name in names[:_SHOWN]:
            console.print(f"  {name}")
        if len(names) > _SHOWN:
            console.print(f"  and {len(names) - _SHOWN} more")
    if report.ignored:
        console.print(f"\n{ignored_words(report.ignored)}", style="bold")
    if out is not None:
        known = any(facts.truth.known for facts in report.splits.values())
        pictures = "images with their truth" if known else "images"
        console.print(f"\nall of it: {out / 'check.json'}; {pictures}: {out / 'sheet.png'}")
    elif report.missing:
        held = some(report.found) or "nothing"
        console.print(f"\nthe folder holds: {held}; docs/data.md shows the whole tree")


def _show_counts(report: "DataReport", console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("class", title=escape(report.data))
    for name in report.splits:
        table.add_column(name, justify="right")
    for name in next(iter(report.splits.values())).per_class:
        table.add_row(escape(name), *(str(facts.per_class[name]) for facts in report.splits.values()))
    table.add_section()
    table.add_row("all", *(str(facts.images) for facts in report.splits.values()))
    console.print(table)


def _show_facts(report: "DataReport", console: "Console") -> None:
    for name, facts in report.splits.items():
        sizes, truth = facts.sizes, facts.truth
        known = f"truth for {truth.known} of {facts.images}"
        cover = "" if truth.share is None else f", covering {percent(truth.share, 0)} of the image"
        empty = f", empty in {truth.empty} of {truth.measured} opened" if truth.empty else ""
        console.print(f"{name}: {_sides(sizes)}; {known}{empty}{cover}")
        if facts.parts:
            console.print(f"  parts: {', '.join(facts.parts)}")


def _sides(sizes: "Sizes") -> str:
    """The sides each by itself: the narrowest image need not be the lowest one."""
    if sizes.least == sizes.most:
        return f"all {sizes.most[0]} × {sizes.most[1]} pixels"
    widths, heights = (
        f"{least} to {most} (median {middle:g})"
        for least, middle, most in zip(sizes.least, sizes.median, sizes.most, strict=True)
    )
    return f"widths {widths}, heights {heights} pixels"


def _findings(report: "DataReport") -> Iterable[tuple[str, list[str]]]:
    found = {
        "missing official files": [f"{name} (from {source})" for name, source in report.missing.items()],
        "the same image in two splits": list(report.leaks),
        "unreadable images, left out": [f"{name}: {reason}" for name, reason in report.unreadable.items()],
        **{what: list(names) for what, names in report.problems.items()},
        "optional files that are absent": [f"{name}: {gives}" for name, gives in report.absent.items()],
    }
    return [(what, names) for what, names in found.items() if names]
