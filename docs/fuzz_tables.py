"""The table of fuzzed inputs by target, from the JSON that scripts/fuzz.py writes.

    python scripts/fuzz.py --inputs 1000000 --minutes 600 --state STATE --out docs/results/fuzz.json

network_tables.py puts it into docs/reliability.md.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from markdown_table import head, line

RESULTS = Path(__file__).resolve().parent / "results"
WORDS = ("what", "inputs", "accepted", "refused with words", "defects", "most memory", "most CPU time")


def fuzz_table(name: str) -> str:
    """Markdown: a row for every target, and one for all."""
    targets = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["targets"]
    lines, total = head(WORDS), Counter[str]()
    for what, told in targets.items():
        counts = Counter[str]({"inputs": told["inputs"]})
        for kind in told["kinds"].values():
            counts.update(kind)
        total.update(counts)
        lines.append(
            _row(what, counts, f"{told['most megabytes']:.0f} MB", f"{told['most CPU seconds']:.1f} s")
        )
    return "\n".join([*lines, _row("**all**", total, "", "")])


def _row(what: str, counts: Counter[str], *most: str) -> str:
    numbers = (f"{counts[name]:,}" for name in ("inputs", "accepted", "refused", "defects"))
    return line([what, *numbers, *most])


TABLES: Mapping[str, Callable[[str], str]] = {"fuzz": fuzz_table}
