"""The part of `dprotonet quality` that changes parts of images: what to check, and its tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprotonet.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from dprotonet.experiment.quality.intervention.check import InterventionCheck
    from dprotonet.experiment.quality.quality import QualityCheck

_TRUTHS = {
    "exchange": "the fall of the logit, one part exchanged",
    "exchange, lead": "the fall of the lead over the likeliest other class, one part exchanged",
    "removal": "the fall of the logit, one part removed",
}
_NOTE = (
    "Mean ± half of the 95 % bootstrap interval over images. Importance of a part: how far the predicted "
    "class's logit, or its lead over the likeliest other class's, falls when the part is changed. "
    "Correlation: Spearman's over parts, of importance with the heat (sum) or the heat per pixel (mean). Top "
    "part: the one with most heat is the most important. Centre, random and area are controls. Truth again: "
    "importance by as many other exchanges in place of heat; hardly more can be asked of an explainer."
)


def intervention_of(
    quality: "QualityCheck", images: int, *, explainers: str, decoder: str
) -> "InterventionCheck | None":
    """What --intervention asks for; None where it is 0, a UserError for data that cannot be drawn again."""
    if not images:
        return None
    if images < 0:
        raise UserError(f"--intervention is {images}; it is a number of images, 0 for none")
    from dprotonet.cli.compare import method_names
    from dprotonet.experiment.compare.method import check_method
    from dprotonet.experiment.quality.intervention.check import InterventionCheck, check_renderer

    names = method_names(explainers)
    for name in names:
        check_method(name)
    check_renderer(quality.data)
    return InterventionCheck(
        quality.model,
        quality.data,
        images=images,
        methods=names,
        decoder=decoder,
    )


def show_intervention(content: Mapping[str, Any], path: Path) -> None:
    """All tables, one below the other."""
    from rich.console import Console

    console = Console()
    for form, found in content["agreement"].items():
        heads = ("correlation, sum", "correlation, mean", "top part, sum", "top part, mean")
        title = f"heat on parts against {_TRUTHS[form]}, {len(content['images'])} images"
        console.print(_drawn(title, "explainer", heads, found))
    if content["contrast"]:
        heads = ("own evidence falls", "sibling's rises", "share of the margin", "sibling preferred")
        console.print(
            _drawn("what happens when one part is exchanged", "exchanged", heads, content["contrast"])
        )
    for group, found in content["deciding part named"].items():
        heads = tuple(next(iter(found.values()))) if found else ()
        if heads:
            console.print(
                _drawn(f"deciding part among the strongest rows, {group}", "hottest part of", heads, found)
            )
    console.print(_NOTE, style="dim")
    console.print(f"intervention: {path}", soft_wrap=True, markup=False, highlight=False)


def _drawn(title: str, first: str, heads: tuple[str, ...], rows: Mapping[str, Mapping[str, Any]]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for head in heads:
        table.add_column(head, justify="right")
    for name, cells in rows.items():
        table.add_row(escape(name), *map(_written, cells.values()))
    return table


def _written(cell: Mapping[str, float | None]) -> str:
    if cell["mean"] is None:
        return "–"
    if cell["low"] is None or cell["high"] is None:
        return f"{cell['mean']:.2f}"
    return f"{cell['mean']:.2f} ± {(cell['high'] - cell['low']) / 2:.2f}"
