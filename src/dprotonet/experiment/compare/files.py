"""What a comparison leaves in its folder: the table in four forms, curves, sweep, and a grid to look at."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.experiment.compare.method import Case
from dprotonet.experiment.compare.run import Comparison, Results
from dprotonet.experiment.compare.store import Record
from dprotonet.experiment.compare.table import Table
from dprotonet.experiment.explaining.pictures import drawn_truth, save_picture
from dprotonet.figures import comparison_grid, faithfulness_curves, overlap_sweep
from dprotonet.files import write_text
from dprotonet.metrics.measures import OVERLAPS, PREDICTED

SHOWN = 8  # images of the grid


def save_comparison(comparison: Comparison, results: Results) -> dict[str, Any]:
    """Write everything; what table.json says, with the paths."""
    folder, network = comparison.folder, comparison.classifier.name
    table = Table.of(results, comparison.protocol, network=network, methods=comparison.methods)
    write_text(folder / "table.csv", table.csv())
    write_text(folder / "table.md", table.markdown())
    write_text(folder / "table.tex", table.latex())
    write_text(folder / "values.csv", _values(results))
    files = {kind: str(folder / f"table.{kind}") for kind in ("csv", "md", "tex", "json")}
    content = {
        "network": network,
        "task": comparison.classifier.task.kind,
        **table.summary(),
        "failures": [failure._asdict() for failure in results.failures],
        "files": files | _pictures(comparison, results),
    }
    write_text(folder / "table.json", json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False))
    return content


def _values(results: Results) -> str:
    """Every single number: a line for each image and method."""
    names = next((list(r.values) for kept in results.records.values() for r in kept.values()), [])
    lines = [",".join(["image", "method", *names, "seconds"])]
    for method, kept in results.records.items():
        for index, record in kept.items():
            numbers = (
                "" if record.values[name] != record.values[name] else f"{record.values[name]:.6g}"
                for name in names
            )
            lines.append(
                ",".join(
                    [_quoted(results.samples[index]), _quoted(method), *numbers, f"{record.seconds:.4g}"]
                )
            )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


def _pictures(comparison: Comparison, results: Results) -> dict[str, str]:
    folder, facts = comparison.folder, comparison.protocol.facts
    kept = {method: list(found.values()) for method, found in results.records.items() if found}
    if not kept:
        return {}
    deletion = {method: torch.stack([record.deletion for record in found]) for method, found in kept.items()}
    insertion = {
        method: torch.stack([record.insertion for record in found]) for method, found in kept.items()
    }
    title = f"{comparison.classifier.name}, {_images(max(map(len, kept.values())))}"
    pace = facts["deletion, insertion"]
    measured = "value, relative to blank and whole image" if comparison.protocol.of_value else None
    curves = faithfulness_curves(deletion, insertion, title=f"{title}, {pace}", measured=measured)
    save_picture(curves, folder / "curves.png")
    files = {"curves": str(folder / "curves.png")}
    overlaps = {method: overlaps_of(found) for method, found in kept.items()}
    if any(overlaps.values()):
        located = {method: found for method, found in overlaps.items() if found}
        known = max(len(next(iter(found.values()))) for found in located.values())
        title = f"{comparison.classifier.name}, {_images(known)} with truth"
        sweep = overlap_sweep(located, mark=comparison.protocol.top, title=title)
        save_picture(sweep, folder / "sweep.png")
        files["sweep"] = str(folder / "sweep.png")
    _save_grid(comparison, results, folder / "grid.png")
    return files | {"grid": str(folder / "grid.png")}


def overlaps_of(records: Sequence[Record]) -> dict[str, Tensor]:
    """Overlaps (N, 99) by name over the images that have truth; none if no image has."""
    known = [record.overlaps for record in records if record.located]
    return {name: torch.stack([found[name] for found in known]) for name in OVERLAPS} if known else {}


def _save_grid(comparison: Comparison, results: Results, path: Path) -> None:
    """A few images, evenly spread, with the maps of all methods; of controls if there is nothing else."""
    chosen = evenly(comparison.indices, SHOWN)
    cases = [comparison.case(index) for index in chosen]
    names = [method.name for method in comparison.methods if not method.control]
    names = names or [method.name for method in comparison.methods]
    maps: Mapping[str, Sequence[Tensor | None]] = {
        name: [_heatmap(results.records[name].get(index)) for index in chosen] for name in names
    }
    classes = comparison.classifier.classes
    grid = comparison_grid(
        [case.sample.image for case in cases],
        maps,
        truth=[drawn_truth(case.sample) for case in cases],
        titles=[classes[int(case.label)].split(",")[0] for case in cases],
        captions=[f"{_asked(comparison, case)}\n{Path(case.sample.name).name}" for case in cases],
    )
    save_picture(grid, path)


def evenly(indices: Sequence[int], count: int) -> list[int]:
    """At most `count` of them, evenly spread."""
    shown = min(count, len(indices))
    return [indices[number * len(indices) // shown] for number in range(shown)]


def _asked(comparison: Comparison, case: Case) -> str:
    """Why this class is explained, and whether it is the right one, where that is known."""
    if comparison.protocol.of_value:
        return "what moves the value"
    if comparison.protocol.asked != PREDICTED:
        return "asked for"
    known = tuple(comparison.data.classes) == tuple(comparison.classifier.classes)
    if not known:
        return "predicted"
    if int(case.label) == case.sample.label:
        return "predicted, rightly"
    return f"predicted; it is {comparison.data.classes[case.sample.label]}"


def _images(count: int) -> str:
    return f"{count} image{'s' * (count != 1)}"


def _heatmap(record: Record | None) -> Tensor | None:
    return None if record is None else record.heatmap
