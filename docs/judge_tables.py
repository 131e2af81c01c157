"""Explainers ranked by every judge, and how far judges agree, as Markdown.

    python benchmarks/judges.py timm:tf_efficientnet_lite0:packaged images:FOLDER imagenet.json --kept a
    python docs/judge_tables.py imagenet.json

A rank is that of the mean over images, controls among the ranked, equals sharing the mean of their places.
The mean rank is over questions, each counting the same however many columns it has, without the columns that
a method optimises itself. Agreement of two judges is Spearman's coefficient of the methods' means, controls
left out: with them any two judges that notice nonsense would agree.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from markdown_table import head, line

CONTROLS = ("random", "centre", "fake")
OWN = "‡"
Json = Mapping[str, Any]
Ranks = Mapping[str, Mapping[str, float]]  # by measure, then by method


def ranks_table(part: Json) -> str:
    """Markdown: ranks by group of judges, methods by their mean rank over groups; then by every column."""
    ranks, methods = ranks_of(part), [row["method"] for row in part["rows"]]
    groups = {group: [m for m in names if m in ranks] for group, names in part["asks"].items()}
    groups = {group: names for group, names in groups.items() if names}
    means = {method: {g: _mean(ranks, names, method) for g, names in groups.items()} for method in methods}
    fair = {method: _fair(part, ranks, groups, method) for method in methods}
    order = sorted(methods, key=lambda method: fair[method])
    lines = head(["method", "mean rank", *groups])
    for method in order:
        cells = [f"{means[method][group]:.1f}" for group in groups]
        lines.append(line([f"`{method}`", f"{fair[method]:.1f}", *cells]))
    return "\n".join([f"*{part['protocol']['images']} images:*", "", *lines])


def columns_table(part: Json) -> str:
    """Markdown: the mean of every measure, a row each, ‡ where the method optimises it; best in bold."""
    methods = [row["method"] for row in part["rows"]]
    means = means_of(part)
    lines = head(["measure", *(f"`{method}`" for method in methods)])
    for measure, found in means.items():
        sign = 1 if part["higher is better"][measure] else -1
        rivals = {m: sign * found[m] for m in methods if m not in CONTROLS and found[m] is not None}
        best = max(rivals.values())
        cells = []
        for method in methods:
            text = _number(found[method]) + _own(part, method, measure)
            cells.append(f"**{text}**" if rivals.get(method) == best else text)
        lines.append(line([f"{measure} {'↑' if sign > 0 else '↓'}", *cells]))
    return "\n".join([f"*{part['protocol']['images']} images:*", "", *lines])


def agreement_table(part: Json) -> str:
    """Markdown: mean coefficient over the pairs of judges of two questions, and, on the diagonal, of one."""
    found = agreement(part)
    lines = head(["", *part["asks"]])
    for one, rows in part["asks"].items():
        cells = []
        for columns in part["asks"].values():
            pairs = [found[a, b] for a in rows for b in columns if (a, b) in found]
            cells.append(f"{fmean(pairs):.2f}".replace("-", "−") if pairs else "–")
        lines.append(line([one, *cells]))
    return "\n".join(lines)


def means_of(part: Json) -> dict[str, dict[str, float | None]]:
    """By measure and method; measures that some method has no value for are left out."""
    rows = part["rows"]
    measures = list(rows[0]["measures"])
    found = {
        measure: {row["method"]: row["measures"][measure]["mean"] for row in rows} for measure in measures
    }
    asked = [row["method"] for row in rows if row["method"] not in CONTROLS]
    return {measure: m for measure, m in found.items() if all(m[name] is not None for name in asked)}


def ranks_of(part: Json) -> dict[str, dict[str, float]]:
    """1 is the best; who has no value comes last."""
    found = {}
    for measure, means in means_of(part).items():
        sign = -1 if part["higher is better"][measure] else 1
        values = {m: float("inf") if value is None else sign * value for m, value in means.items()}
        found[measure] = dict(zip(values, _places(list(values.values())), strict=True))
    return found


def agreement(part: Json) -> dict[tuple[str, str], float]:
    """Spearman's coefficient of two measures, both the right way up; none for one of equal values."""
    means = means_of(part)
    ranked = {}
    for measure, found in means.items():
        sign = -1 if part["higher is better"][measure] else 1
        values = [sign * value for m, value in found.items() if m not in CONTROLS and value is not None]
        if len(set(values)) > 1:
            ranked[measure] = _places(values)
    return {(a, b): _pearson(ranked[a], ranked[b]) for a in ranked for b in ranked if a != b}


def _fair(part: Json, ranks: Ranks, groups: Mapping[str, Sequence[str]], method: str) -> float:
    """Every question counts the same, and what the method optimises itself does not count for it."""
    own = part["optimises"].get(method, [])
    judged = [[m for m in names if m not in own] for names in groups.values()]
    return fmean(_mean(ranks, names, method) for names in judged if names)


def _mean(ranks: Ranks, names: Sequence[str], method: str) -> float:
    return fmean(ranks[name][method] for name in names)


def _places(values: Sequence[float]) -> list[float]:
    """From 1 for the lowest, equals having the mean of theirs."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def _pearson(one: Sequence[float], other: Sequence[float]) -> float:
    means = fmean(one), fmean(other)
    a, b = [value - means[0] for value in one], [value - means[1] for value in other]
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5


def _own(part: Json, method: str, measure: str) -> str:
    return OWN if measure in part["optimises"].get(method, []) else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def main(words: Sequence[str]) -> None:
    if len(words) != 1:
        sys.exit("which results? python docs/judge_tables.py FILE.json")
    content: Json = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    for name in ("quick", "all"):
        if content[name]["protocol"]["images"]:
            for table in (ranks_table, agreement_table, columns_table):
                print(table(content[name]), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
