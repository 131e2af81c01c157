"""Tables of heatmaps: explainers on the same images, measured by the benchmarks of the decoder.

    python benchmarks/decoder.py … > docs/results/decoder-….json
    python benchmarks/paper_decoder.py … --out docs/results/paper_decoder.json
    dprotonet compare RUN … --out FOLDER; cp FOLDER/table.json docs/results/compare-….json

network_tables.py puts them into their pages.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from markdown_table import head, line

RESULTS = Path(__file__).resolve().parent / "results"
CONTROLS = ("random", "centre", "all but one", "fake")
DIGITS = {"AD": 1, "AI": 1, "AG": 1, "AD50": 1, "AI50": 1}  # percentages; all other measures lie in [0, 1]
FALLS = ("deletion", "AD", "AD50")  # less is better
PAPER = (
    *("deletion", "insertion", "AD", "AI", "AD50", "AI50"),
    *("DICE", "IOU", "PPV", "sensitivity"),
)
Json = Mapping[str, Any]
Means = Mapping[str, Mapping[str, float]]  # by method, then by measure


def benchmark_table(name: str) -> str:
    """Markdown: what benchmarks/decoder.py measured, the best method of a column in bold, controls aside."""
    rows: Json = _read(name)["rows"]
    means = {method: row["mean"] for method, row in rows.items()}
    passes = {method: " / ".join(f"{number:.0f}" for number in row["passes"]) for method, row in rows.items()}
    return _table(means, {"F / B": passes})


def paper_table(name: str) -> str:
    """Markdown: the paper's decoder at full length, means over images per node; time as its median."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for row in sorted(_read(name)["rows"], key=lambda row: row["node"] != "prototype"):
        groups.setdefault((row["node"], row["method"]), []).append(row)
    lines = head(["node", "method", "images", "kept", *map(_head, PAPER), "CPU s"])
    for (node, method), rows in groups.items():
        kept = [row["kept"] for row in rows if row["kept"] is not None]
        cells = [f"{fmean(row[key] for row in rows):.{DIGITS.get(key, 3)}f}" for key in PAPER]
        seconds = f"{median(row.get('cpu_seconds', 0.0) for row in rows):.4g}"
        share = f"{100 * fmean(kept):.1f} %" if kept else ""
        lines.append(line([node, f"`{method}`", str(len(rows)), share, *cells, seconds]))
    return "\n".join(lines)


def before_table(name: str) -> str:
    """Markdown: the decoder before and after a change, by data set; then paired differences of all images."""
    found = _read(name)
    parts = []
    for data, item in found["sets"].items():
        shared = item["rows"]["before"]["mean"]  # ROAD is not measured on all images
        means = {method: {key: row["mean"][key] for key in shared} for method, row in item["rows"].items()}
        further = {
            "F / B": {method: _passes(row) for method, row in item["rows"].items()},
            "time": {method: f"{row['of before']:.2f}" for method, row in item["rows"].items()},
        }
        parts.append(f"*{data}, {item['images']} images:*\n\n{_table(means, further)}")
    (whole,) = [found["together"]] if found["together"] else found["sets"].values()
    methods = found["settings"]["methods"]
    lines = head(["gain over before", *(f"`{method}`" for method in methods)])
    pairs = [whole["compared"][f"{method} vs before"] for method in methods]
    lines += [
        line([measure, *(_difference(pair[measure], measure) for pair in pairs)]) for measure in pairs[0]
    ]
    return "\n\n".join([*parts, f"*Paired, {whole['images']} images:*", "\n".join(lines)])


def rival_table(name: str) -> str:
    """Markdown: what `instant` gains over every CAM of one pass, with paired intervals."""
    compared = _read(name)["sets"]["imagenet"]["compared"]
    rivals = [pair.removeprefix("instant vs ") for pair in compared if pair.startswith("instant vs ")]
    measures = ("deletion", "insertion")
    lines = head(["instant better than", *measures])
    for rival in rivals:
        if rival != "before":
            found = compared[f"instant vs {rival}"]
            lines.append(line([f"`{rival}`", *(_difference(found[one], one) for one in measures)]))
    return "\n".join(lines)


def _passes(row: Json) -> str:
    return " / ".join(f"{number:.0f}" for number in row["passes"])


def _difference(found: Json, measure: str) -> str:
    digits = DIGITS.get(measure, 3)
    numbers = [f"{found[key]:+.{digits}f}".replace("-", "−") for key in ("difference", "low", "high")]
    text = f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"
    return f"**{text}**" if found["low"] > 0 or found["high"] < 0 else text


def compared_table(name: str) -> str:
    """Markdown: what `dprotonet compare` measured; bold is what it calls surely the best."""
    found = _read(name)
    measures = list(found["rows"][0]["measures"])
    lines = head(["method", *map(_head, measures), "F / B"])
    for row in found["rows"]:
        cells = [_mean_of(row, measure, found["surely best"]) for measure in measures]
        lines.append(line([f"`{row['method']}`", *cells, f"{row['forward']} / {row['backward']}"]))
    return "\n".join(lines)


def _mean_of(row: Json, measure: str, best: Mapping[str, str]) -> str:
    mean = row["measures"][measure]["mean"]
    if mean is None:
        return "–"
    text = f"{mean:.{DIGITS.get(measure, 3)}f}"
    return f"**{text}**" if best.get(measure) == row["method"] else text


def _table(means: Means, further: Mapping[str, Mapping[str, str]]) -> str:
    measures = list(next(iter(means.values())))
    methods = [method for method in means if method not in CONTROLS]
    lines = head(["method", *map(_head, measures), *further])
    for method in means:
        cells = [_cell(means, methods, method, measure) for measure in measures]
        lines.append(line([f"`{method}`", *cells, *(column[method] for column in further.values())]))
    return "\n".join(lines)


def _cell(means: Means, methods: Sequence[str], method: str, measure: str) -> str:
    text = _written(means, method, measure)
    best = (min if measure in FALLS else max)(methods, key=lambda one: means[one][measure])
    return f"**{text}**" if method in methods and text == _written(means, best, measure) else text


def _written(means: Means, method: str, measure: str) -> str:
    return f"{means[method][measure]:.{DIGITS.get(measure, 3)}f}"


def _head(measure: str) -> str:
    return f"{measure} {'↓' if measure in FALLS else '↑'}"


def _read(name: str) -> Json:
    found: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


TABLES: Mapping[str, Callable[[str], str]] = {
    "decoder-imagenet": benchmark_table,
    "decoder-birds": benchmark_table,
    "decoder-ablation": benchmark_table,
    "decoder-softly": before_table,
    "decoder-before": before_table,
    "decoder-before-rivals": lambda _: rival_table("decoder-before"),
    "paper_decoder": paper_table,
    "compare-cub": compared_table,
    "compare-pets": compared_table,
    "mosaic-cub": compared_table,
    "mosaic-pets": compared_table,
}
