"""The tables of networks in README and on the pages of docs: cut from benchmarks, drawn from that.

    dprotonet benchmark configs/frozen/general.toml --out runs/general
    dprotonet benchmark configs/frozen/medical.toml --out runs/medical
    dprotonet benchmark configs/joint/general.toml --out runs/joint
    python docs/network_tables.py frozen-general=runs/general frozen-medical=runs/medical
    python docs/network_tables.py joint-general=runs/joint
    python docs/network_tables.py    # the pages alone, from docs/results/*.json

What stands between the marks in the pages is never written by hand; a test compares it with the JSON.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import explainer_tables
import familiarity_tables
import fuzz_tables
import quality_tables
import training_tables
import transformer_tables

DOCS = Path(__file__).resolve().parent
TABLES = {
    "frozen-general": ("accuracy",),
    "frozen-medical": ("accuracy", "auroc"),
    "joint-general": ("accuracy",),
    "joint-rivals": ("accuracy",),
    "joint-backbone": ("accuracy",),
    "parts": ("accuracy", "auroc"),
}
PAGES = {
    "results.md": ("frozen-general", "frozen-medical", "joint-rivals", "compare-cub", "compare-pets"),
    "metrics.md": ("mosaic-cub", "mosaic-pets"),
    "rivals.md": ("frozen-choice", "joint-choice"),
    "familiarity.md": ("familiarity", "familiarity-pets", "familiarity-cub", "familiarity-birds"),
    "training.md": ("joint-general", "joint-backbone", *training_tables.TABLES),
    "parts.md": ("parts", *quality_tables.TABLES),
    "decoder.md": (
        "decoder-imagenet",
        "decoder-birds",
        "decoder-ablation",
        "decoder-softly",
        "decoder-before",
        "decoder-before-rivals",
        "paper_decoder",
    ),
    "reliability.md": ("fuzz",),
    "transformers.md": tuple(transformer_tables.TABLES),
    "../README.md": ("summary",),
}
KEPT = (
    *("row", "column", "seed", "baseline", "split", "images"),
    *("accuracy", "balanced_accuracy", "auroc", "accuracy_at_the_end"),
    *("epochs", "kept epoch", "steps", "seconds", "stopped by", "push changes"),
)
Result = Mapping[str, Any]


def cut(results: Path) -> dict[str, Any]:
    """What a table needs of a benchmark's results.json: no configs, no confusion matrices."""
    content = json.loads(results.read_text(encoding="utf-8"))
    runs = [{key: item[key] for key in KEPT if key in item} for item in content["results"]]
    return {
        "title": content["title"],
        "finished": content["finished"],
        "runs": content["runs"],
        "results": runs,
    }


def table(content: Mapping[str, Any], measures: Sequence[str]) -> str:
    """Markdown: a line for each row, the best mean of a column in bold."""
    results: list[Result] = content["results"]
    rows, columns = (list(dict.fromkeys(item[key] for item in results)) for key in ("row", "column"))
    pairs = [(column, measure) for column in columns for measure in measures]
    shown = [pair for pair in pairs if any(_of(results, row, *pair) for row in rows)]
    best = {pair: max(_mean(_of(results, row, *pair)) for row in rows) for pair in shown}
    several = len(measures) > 1
    words = {"accuracy": "accuracy", "auroc": "AUROC"}
    heads = [f"{column}, {words[measure]}" if several else column for column, measure in shown]
    heads = ["", *heads, "runs", "epochs", "kept", "steps", "seconds", "stopped by", "first push", "later"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [_value(_of(results, row, *pair), best[pair]) for pair in shown]
        found = [item for item in results if item["row"] == row]
        lines.append(f"| {' | '.join([row, *cells, *_length(found), *_pushes(found)])} |")
    return "\n".join(lines)


def _of(results: Iterable[Result], row: str, column: str, measure: str) -> list[float]:
    return [
        item[measure]
        for item in results
        if (item["row"], item["column"]) == (row, column) and item[measure] is not None
    ]


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else -1.0


def _value(values: Sequence[float], best: float) -> str:
    if not values:
        return "–"
    text = f"{100 * fmean(values):.1f}"
    text = f"**{text}**" if fmean(values) == best else text
    return text + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")


def _length(found: Sequence[Result]) -> list[str]:
    numbers = []
    for key in ("epochs", "kept epoch", "steps", "seconds"):
        known = [item[key] for item in found if item.get(key) is not None]
        numbers.append(f"{fmean(known):.0f}" if known else "–")
    counts = Counter(word for item in found for word in item.get("stopped by") or ())
    words = ", ".join(f"{word} {number}" for word, number in counts.most_common())
    return [str(len(found)), *numbers, words or "–"]


def _pushes(found: Sequence[Result]) -> list[str]:
    """Mean change of validation accuracy in points, at the first push of a run and at the later ones."""
    changes = [item["push changes"] for item in found if item["push changes"]]
    first, later = [item[0] for item in changes], [change for item in changes for change in item[1:]]
    return [_signed(100 * fmean(some)) if some else "–" for some in (first, later)]


def _signed(points: float) -> str:
    text = f"{points:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def choices(name: str) -> str:
    """Markdown: validation accuracy of settings that were tried, after each push and at it."""
    heads = (
        "ProtoPNet and its like",
        "steps",
        "validation accuracy after each round, %",
        "change at each push",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for run in _results(name)["runs"]:
        rounds = ", ".join(f"{100 * item['val_accuracy']:.1f}" for item in run["rounds"])
        pushes = ", ".join(_signed(100 * (after - before)) for before, after in run["pushes"])
        lines.append(f"| {run['name']} | {run['steps']} | {rounds} | {pushes or '–'} |")
    return "\n".join(lines)


def trials(name: str) -> str:
    """Markdown: settings compared by benchmarks/recipe_folds.py, after each push and at it."""
    heads = ("", "validation accuracy after each push, %", "change at each push")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for run in _results(name):
        after = ", ".join(f"{value:.1f}" for value in run["after"])
        pairs = zip(run["before"], run["after"], strict=True)
        lines.append(f"| {run['name']} | {after} | {', '.join(_signed(b - a) for a, b in pairs)} |")
    return "\n".join(lines)


SUMMARY_COLUMNS = ("birds", "CUB", "pets", "cars", "chest")
SUMMARY = {  # where each row of README's table is: the results and the name there
    "DProtoNet, parts": (("parts", "parts"), ("frozen-general", "DProtoNet, parts")),
    "the same, backbone learns too": (("joint-general", "DProtoNet, parts, joint"),),
    "DProtoNet, masks": (("parts", "masks"), ("frozen-general", "DProtoNet, masks")),
    "XProtoNet, started as DProtoNet is": (
        ("frozen-general", "XProtoNet, discriminant start"),
        ("frozen-medical", "XProtoNet, discriminant start"),
    ),
    "ProtoPNet, started likewise": (
        ("frozen-general", "ProtoPNet, discriminant start"),
        ("frozen-medical", "ProtoPNet, discriminant start"),
    ),
    "black box": (("frozen-general", "black box"), ("frozen-medical", "black box")),
    "the same, backbone learns too ": (("joint-general", "black box, joint"),),
    "linear probe": (("parts", "linear probe"), ("frozen-general", "linear probe")),
    "discriminant in closed form": (("parts", "discriminant"), ("frozen-general", "discriminant")),
}


def summary() -> str:
    """Markdown: README's table of accuracies, each the mean over seeds."""
    names = dict.fromkeys(name for places in SUMMARY.values() for name, _ in places)
    known = {name: _results(name)["results"] for name in names}
    found = {
        line: [
            next(filter(None, (_of(known[name], row, column, "accuracy") for name, row in places)), [])
            for column in SUMMARY_COLUMNS
        ]
        for line, places in SUMMARY.items()
    }
    best = [max(_mean(values[place]) for values in found.values()) for place in range(len(SUMMARY_COLUMNS))]
    lines = [
        f"| test accuracy, % | {' | '.join(SUMMARY_COLUMNS)} |",
        "|---" * (len(SUMMARY_COLUMNS) + 1) + "|",
    ]
    for line, several in found.items():
        cells = [_value(values, most).partition(" ±")[0] for values, most in zip(several, best, strict=True)]
        lines.append(f"| {' | '.join([line.strip(), *cells])} |")
    return "\n".join(lines)


def _results(name: str) -> Any:
    return json.loads((DOCS / "results" / f"{name}.json").read_text(encoding="utf-8"))


DRAWN_OTHERWISE = {
    **explainer_tables.TABLES,
    **familiarity_tables.TABLES,
    **fuzz_tables.TABLES,
    **quality_tables.TABLES,
    **training_tables.TABLES,
    **transformer_tables.TABLES,
    "frozen-choice": choices,
    "joint-choice": trials,
    "summary": lambda _: summary(),
}


def drawn() -> dict[str, str]:
    """The text of each page with every table between its marks drawn anew from its JSON."""
    return {page: _page(page, names) for page, names in PAGES.items()}


def _page(page: str, names: Sequence[str]) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    for name in names:
        found = table(_results(name), TABLES[name]) if name in TABLES else DRAWN_OTHERWISE[name](name)
        begin, end = f"<!-- {name}: docs/network_tables.py -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert begin in text, f"{page} has no marks of {name}"
        assert end in rest, f"{page} has no end of {name}"
        text = f"{before}{begin}\n\n{found}\n\n{end}{after}"
    return text


def main(words: Sequence[str]) -> None:
    for name, folder in [_named(word) for word in words]:
        text = json.dumps(cut(folder / "results.json"), ensure_ascii=False, indent=1)
        (DOCS / "results" / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for page, text in drawn().items():
        (DOCS / page).write_text(text, encoding="utf-8")


def _named(word: str) -> tuple[str, Path]:
    name, _, folder = word.partition("=")
    if name not in TABLES or not folder:
        raise SystemExit(f"{word}: write NAME=FOLDER, NAME being one of {', '.join(TABLES)}")
    return name, Path(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
