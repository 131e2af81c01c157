"""Tables of docs/transformers.md, drawn from what benchmarks/transformers.py measured.

network_tables.py puts them into the page.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_table import head, line

RESULTS = Path(__file__).resolve().parent / "results"
CONTROLS = ("random", "centre", "area")
DIGITS = {"AD": 1, "AI": 1, "AG": 1, "AD50": 1, "AI50": 1}
FALLS = ("deletion", "AD", "AD50", "ROAD hottest")  # less is better
FAITHFUL = ("deletion", "insertion", "AD", "AI", "AG", "AD50", "AI50")
ROAD = ("ROAD hottest", "ROAD coldest", "ROAD combined")
PLACES = ("DICE", "IOU", "PPV", "sensitivity", "energy", "pointing", "part")
TRUTH = tuple(
    f"{form}: {what}"
    for form in ("exchange", "exchange, lead", "removal", "removal, lead")
    for what in ("correlation, mean", "correlation, sum", "first part, mean", "first part, sum")
)
PAIRED = (
    *("deletion", "insertion", "AD", "AD50", "ROAD combined"),
    *("exchange: correlation, mean", "removal: correlation, mean", "exchange: correlation, sum"),
)
Json = Mapping[str, Any]


def means(columns: Sequence[str]) -> str:
    """Markdown: the best of a column in bold, controls aside, whether surely the best or not."""
    rows: Json = _found()["rows"]
    lines = head(["method", *(f"{column} {_arrow(column)}" for column in columns), "F / B"])
    best = {column: _best(rows, column) for column in columns}
    for method, row in rows.items():
        cells = [_bold(_written(row, column), method in best[column]) for column in columns]
        lines.append(line([f"`{method}`", *cells, " / ".join(map(str, row["passes"]))]))
    return "\n".join(lines)


def turned() -> str:
    """Markdown: truth by intervention, a line for each way of asking, for there are many."""
    rows: Json = _found()["rows"]
    lines = head(["part changed: asked", *(f"`{method}`" for method in rows)])
    for column in TRUTH:
        best = _best(rows, column)
        cells = [_bold(_written(row, column), method in best) for method, row in rows.items()]
        lines.append(line([column, *cells]))
    return "\n".join(lines)


def gains() -> str:
    """Markdown: what `mdm` gains over each method, by image; above zero is better for `mdm`."""
    compared: Json = _found()["compared"]
    lines = head(["`mdm` better than", *PAIRED])
    for pair, found in compared.items():
        cells = [_difference(found[column], column) for column in PAIRED]
        lines.append(line([f"`{pair.partition(' vs ')[2]}`", *cells]))
    return "\n".join(lines)


def network() -> str:
    """Markdown: what was trained, and how good it is."""
    found = _found()["network"]
    lines = head(["parameters", "images learned from", "seen", "minutes", "validation", "test"])
    test = f"{found['test accuracy']:.1%} ± {found['test standard error']:.1%}".replace("%", " %")
    validation = f"{found['validation accuracy']:.1%}".replace("%", " %")
    size = f"{found['parameters'] / 1e6:.1f} M"
    seen, own = f"{found['training images seen']:,}", f"{found['images']['train']:,}"
    lines.append(line([size, own, seen, f"{found['minutes']:.0f}", validation, test]))
    return "\n".join(lines)


def _best(rows: Json, column: str) -> list[str]:
    known = {
        method: row["mean"][column]["mean"]
        for method, row in rows.items()
        if method not in CONTROLS and row["mean"][column]["mean"] is not None
    }
    first = (min if column in FALLS else max)(known, key=lambda method: known[method])
    return [method for method in known if _written(rows[method], column) == _written(rows[first], column)]


def _written(row: Json, column: str) -> str:
    value = row["mean"][column]["mean"]
    return "–" if value is None else f"{value:.{DIGITS.get(column, 3)}f}".replace("-", "−")


def _bold(text: str, chosen: bool) -> str:
    return f"**{text}**" if chosen else text


def _arrow(column: str) -> str:
    return "↓" if column in FALLS else "↑"


def _difference(found: Json, column: str) -> str:
    if found["difference"] is None:
        return "–"
    digits = DIGITS.get(column, 3)
    numbers = [f"{found[key]:+.{digits}f}".replace("-", "−") for key in ("difference", "low", "high")]
    text = f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"
    return _bold(text, found["low"] > 0 or found["high"] < 0)


def _found() -> Json:
    found: Json = json.loads((RESULTS / "transformers.json").read_text(encoding="utf-8"))
    return found


TABLES: Mapping[str, Callable[[str], str]] = {
    "transformers-network": lambda _: network(),
    "transformers-faithful": lambda _: means((*FAITHFUL, *ROAD)),
    "transformers-places": lambda _: means(PLACES),
    "transformers-truth": lambda _: turned(),
    "transformers-gains": lambda _: gains(),
}
