"""Tables of the warning about unfamiliar images, beside the same by simpler measures.

    python benchmarks/familiarity.py --run RUN … --unknown … --out docs/results/familiarity-….json

network_tables.py puts them into docs/familiarity.md.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from markdown_table import head, line

RESULTS = Path(__file__).resolve().parent / "results"
BASELINES = ("prototypes only", "mahalanobis", "nearest images", "largest probability", "energy")
KNOWN = "known test images"


def warned_table(name: str) -> str:
    """Markdown: shares of images with a warning; a group of columns for every run."""
    runs = _runs(name)
    lines = head(["images", *runs])
    kinds = list(dict.fromkeys(kind for run in runs.values() for kind in run["unknown"]))
    for kind in (KNOWN, *kinds):
        lines.append(line([kind, *(_warned(run, kind) for run in runs.values())]))
    return "\n".join(lines)


def compared_table(name: str) -> str:
    """Markdown: of one run, beside prototypes alone, by their limits and at one share of known images."""
    words = ("images", "warned", "at 5 % of known test images", "AUROC")
    (run,) = _runs(name).values()
    lines = head(words)
    lines.append(line([KNOWN, _warned(run, KNOWN), "", ""]))
    for kind, row in run["unknown"].items():
        before = row["baselines"]["prototypes only"]
        at_5 = f"{_percent(row['warned_at_5'])} ({_percent(before['warned_at_5'])})"
        lines.append(line([kind, _warned(run, kind), at_5, f"{row['auroc']:.3f} ({before['auroc']:.3f})"]))
    return "\n".join(lines)


def _warned(run: Mapping[str, Any], kind: str) -> str:
    if kind == KNOWN:
        known = run["known"]
        own, others = known["warning"], [known[name] for name in BASELINES]
    elif kind in run["unknown"]:
        row = run["unknown"][kind]
        own, others = row["warned"], [row["baselines"][name]["warned"] for name in BASELINES]
    else:
        return ""
    return f"{_percent(own)} ({', '.join(map(_percent, others))})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _runs(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["runs"]
    return found


TABLES: Mapping[str, Callable[[str], str]] = {
    "familiarity": warned_table,
    "familiarity-pets": compared_table,
    "familiarity-cub": compared_table,
    "familiarity-birds": compared_table,
}
