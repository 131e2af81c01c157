"""Tables of what rows of evidence are worth: means over runs of `dprotonet quality`, one JSON each.

    dprotonet quality RUN --split test --images 1 --top 5 --skip noise,far,purity \\
        --intervention 24 --explainers mdm,gradcam,gradcam++ --out OUT     # quality.json, intervention.json

They are kept as docs/results/parts-quality-SEED.json and parts-intervention-SEED.json; network_tables.py puts
the tables into their pages.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from markdown_table import head, line

RESULTS = Path(__file__).resolve().parent / "results"
SEEDS = (0, 1, 2)
MASKS = "quality-demo"  # the same command on a run of `dprotonet demo --masks 720`

ROWS = {  # measures of the rows shown: what each is called, and how many decimals it has
    "overlap": ("overlap of rows (IoU of the hottest tenths) ↓", 2),
    "apart": ("rows at different places ↑", 2),
    "named": ("different parts at the peaks, of five ↑", 1),
    "covered": ("parts covered by some row ↑", 1),
}
MAPS = {
    "mdm": "class heatmap (`mdm`)",
    "rows": "rows, joined by contribution",
    "rows by lead": "rows, joined by lead",
    "gradcam": "Grad-CAM",
    "gradcam++": "Grad-CAM++",
    "area": "*area of the part*",
    "centre": "*centre*",
    "truth again": "*truth again*",
}
AGREEMENT = {  # a truth and how the heat on a part is taken
    "logit: correlation (sum)": ("exchange", "correlation_sum"),
    "top part right": ("exchange", "top_sum"),
    "lead: correlation (mean)": ("exchange, lead", "correlation_mean"),
    "top part right (mean)": ("exchange, lead", "top_mean"),
}
DECIDING = {
    "its hottest part is the deciding one: first row": ("all images", "first 1"),
    "one of the first three rows": ("all images", "first 3"),
    "one of three rows, confusions of siblings only": ("confusions of siblings", "first 3"),
}
Json = Mapping[str, Any]


def rows_table(_: str = "") -> str:
    """Markdown: measures of the five rows that decide, parts beside masks and blind points."""
    quality, (masks,) = _runs("parts-quality"), _read([MASKS])
    lines = head(["", f"parts, seeds {_said(SEEDS)}", "masks, one run", "blind points on the bird"])
    for measure, (words, digits) in ROWS.items():
        own = [run["measures"][measure]["decoder"]["mean"] for run in quality]
        blind = [run["measures"][measure]["object"]["mean"] for run in quality]
        single = masks["measures"][measure]["decoder"]["mean"]
        cells = [_several(own, digits), f"{single:.{digits}f}", _several(blind, digits)]
        lines.append(line([words, *cells]))
    return "\n".join(lines)


def intervention_table(_: str = "") -> str:
    """Markdown: how far heat on parts agrees with what changing them does."""
    runs = _runs("parts-intervention")
    lines = head(["", *AGREEMENT])
    for key, words in MAPS.items():
        cells = [_agreement(runs, key, *place) for place in AGREEMENT.values()]
        lines.append(line([words, *cells]))
    return "\n".join(lines)


def deciding_table(_: str = "") -> str:
    """Markdown: whether rows show the part by which siblings differ, and what exchanging it does."""
    runs = _runs("parts-intervention")
    lines = head(["", "rows", "random maps"])
    for words, (images, first) in DECIDING.items():
        found = [
            [run["deciding part named"][images][kind][first]["mean"] for run in runs]
            for kind in ("rows by mean", "random by mean")
        ]
        lines.append(line([words, *(_percent(values) for values in found)]))
    turned = [
        [run["contrast"][kind]["turned"]["mean"] for run in runs]
        for kind in ("the sibling's part", "another part")
    ]
    lines += ["", *head(["", "the deciding part becomes the sibling's", "another part is exchanged"])]
    lines.append(line(["the sibling is preferred", *(_percent(values) for values in turned)]))
    return "\n".join(lines)


def _agreement(runs: Sequence[Json], key: str, truth: str, measure: str) -> str:
    found = [run["agreement"][truth][key][measure]["mean"] for run in runs]
    return "–" if None in found else _several(found, 2)  # the area of a part has no mean heat


def _runs(name: str) -> list[Json]:
    return _read([f"{name}-{seed}" for seed in SEEDS])


def _read(names: Sequence[str]) -> list[Json]:
    return [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in names]


def _several(values: Sequence[float], digits: int) -> str:
    """Mean ± standard deviation over seeds."""
    return f"{fmean(values):.{digits}f} ± {stdev(values):.{digits}f}".replace("-", "−")


def _percent(values: Sequence[float]) -> str:
    return f"{100 * fmean(values):.0f} ± {100 * stdev(values):.0f} %"


def _said(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


TABLES: Mapping[str, Callable[[str], str]] = {
    "parts-rows": rows_table,
    "parts-intervention": intervention_table,
    "parts-deciding": deciding_table,
}
