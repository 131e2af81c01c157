"""Tables of training whole: one change at a time, and accuracy over images per class.

    python benchmarks/joint_changes.py --data cub:PATH --out docs/results/joint-changes.json
    python benchmarks/images_per_class.py --data SET --sizes … --out docs/results/images-per-class.json

network_tables.py puts them into docs/training.md.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markdown_table import head, line

RESULTS = Path(__file__).resolve().parent / "results"
REFERENCE = "as it is"
SETS = {"cub": "CUB", "folder": "pets", "birds": "birds"}  # by the word before the colon of --data


def changes_table(name: str) -> str:
    """Markdown: every change with its validation accuracy after each push, and what it changes."""
    found = {row["change"]: row for row in _read(name)}
    own = found[REFERENCE]["after"][-1]
    words = ("change", "after each push, %", "at the end", "difference", "training accuracy, last epoch")
    lines = head(words)
    order = sorted(found.values(), key=lambda row: (row["change"] != REFERENCE, -row["after"][-1]))
    for row in order:
        after, last = row["after"], row["epochs"][-1]["train"]
        gained = "–" if row["change"] == REFERENCE else _signed(after[-1] - own)
        cells = [", ".join(f"{value:.1f}" for value in after[:-1]), f"{after[-1]:.1f}", gained, f"{last:.1f}"]
        lines.append(line([row["change"], *cells]))
    return "\n".join(lines)


def curve_table(name: str) -> str:
    """Markdown: closed form, frozen and joint over images per class."""
    lines = head(("data", "images per class", "discriminant", "parts, frozen", "parts, joint"))
    for row in _read(name):
        values = [row[key] for key in ("discriminant", "frozen", "joint")]
        cells = [f"**{value:.1f}**" if value == max(values) else f"{value:.1f}" for value in values]
        lines.append(line([SETS[row["data"].partition(":")[0]], str(row["per_class"]), *cells]))
    return "\n".join(lines)


def _read(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


TABLES: Mapping[str, Callable[[str], str]] = {
    "joint-changes": changes_table,
    "images-per-class": curve_table,
}
