"""The table of a comparison: mean and interval of every measure, bold only where the best is surely the best.

One table, five clothes: terminal (drawn by the command), CSV, JSON, Markdown and LaTeX. A control is never
the best, and columns that nobody has a value for are left out.
"""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dprotonet.experiment.compare.method import CONTROLS
from dprotonet.experiment.compare.run import Results
from dprotonet.experiment.compare.store import Record
from dprotonet.metrics.comparison import Interval, mean_interval, paired_bootstrap
from dprotonet.metrics.measures import Measure, Protocol

ARROWS = {True: "↑", False: "↓"}
FEWEST = 10  # images that a difference must rest on to be called sure
BACKSLASH = "\\"
_LATEX = {letter: BACKSLASH + letter for letter in "_%&#${}"}
_LATEX |= {BACKSLASH: r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"±": r"$\pm$", "–": "--"}


@dataclass(frozen=True)
class Row:
    """One method: its measures, and what an image costs."""

    method: str
    images: int
    cells: Mapping[str, Interval]
    seconds: float
    passes: tuple[int, int]


@dataclass(frozen=True)
class Table:
    """All methods, the measures that have values, and who is surely the best in which."""

    rows: tuple[Row, ...]
    measures: tuple[Measure, ...]
    best: Mapping[str, str]  # measure to method, where every paired difference excludes zero
    facts: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        results: Results,
        protocol: Protocol,
        *,
        network: str | None = None,
        measures: Sequence[Measure] | None = None,
        controls: Collection[str] = CONTROLS,
    ) -> "Table":
        """`measures` are the columns, by default those that have values; `controls` are never the best."""
        columns = {name: _columns(kept, protocol) for name, kept in results.records.items()}
        known = [measure for measure in protocol.measures if _has_values(measure, columns)]
        known = known if measures is None else list(measures)
        rows = [_row(name, kept, columns[name], known) for name, kept in results.records.items()]
        images = sorted({index for kept in results.records.values() for index in kept})
        aligned = {
            name: {measure: _aligned(kept, values[measure], images) for measure in values}
            for (name, kept), values in zip(results.records.items(), columns.values(), strict=True)
            if name not in controls
        }
        best = {measure.name: _surely_best(aligned, measure) for measure in known}
        sure = {measure: method for measure, method in best.items() if method is not None}
        facts: dict[str, Any] = {"network": network} if network else {}
        facts |= {**protocol.facts, "images": len(images), "without truth": results.without_truth}
        flat = {name: sum(record.flat for record in kept.values()) for name, kept in results.records.items()}
        if any(flat.values()):
            facts["flat maps"] = ", ".join(f"{name} {count}" for name, count in flat.items() if count)
        return cls(tuple(rows), tuple(known), sure, facts)

    def summary(self) -> dict[str, Any]:
        """Everything as plain numbers; None where a value is undefined."""
        return {
            "protocol": dict(self.facts),
            "surely best": dict(self.best),
            "rows": [
                {
                    "method": row.method,
                    "images": row.images,
                    "seconds": None if isnan(row.seconds) else row.seconds,
                    "forward": row.passes[0],
                    "backward": row.passes[1],
                    "measures": {name: plain(cell) for name, cell in row.cells.items()},
                }
                for row in self.rows
            ],
        }

    def csv(self) -> str:
        """One line a method: mean, low and high of every measure, the cost, and the protocol."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        parts = ("", " low", " high")
        heads = [f"{measure.name}{part}" for measure in self.measures for part in parts]
        writer.writerow(["method", "images", *heads, "seconds", "forward", "backward", "protocol"])
        for row in self.rows:
            cells = [value for measure in self.measures for value in row.cells[measure.name]]
            written = ["" if value != value else f"{value:.6g}" for value in cells]
            seconds = "" if isnan(row.seconds) else f"{row.seconds:.4g}"
            writer.writerow([row.method, row.images, *written, seconds, *row.passes, self.protocol()])
        return text.getvalue()

    def markdown(self) -> str:
        """For a README or a pull request."""
        heads = ["method", *(f"{m.name} {ARROWS[m.higher]}" for m in self.measures), "seconds", "F / B"]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for row in self.rows:
            name, *cells = self._line(row, "**{}**", "{} ± {}")
            lines.append(f"| {' | '.join([name.replace('|', BACKSLASH + '|'), *cells])} |")
        return "\n".join(lines) + "\n\n" + self.note() + "\n"

    def latex(self) -> str:
        """A tabular that needs the package booktabs."""
        arrows = {True: r"$\uparrow$", False: r"$\downarrow$"}
        heads = ["method", *(f"{m.name} {arrows[m.higher]}" for m in self.measures), "seconds", "F / B"]
        lines = [r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}", r"\toprule"]
        lines += [" & ".join(heads) + r" \\", r"\midrule"]
        for row in self.rows:
            cells = self._line(row, r"\textbf{{{}}}", "{} $\\pm$ {}")
            lines.append(" & ".join([escaped(cells[0]), *cells[1:]]) + r" \\")
        note = rf"\par\smallskip{{\footnotesize {escaped(self.note())}\par}}"
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", note]) + "\n"

    def note(self) -> str:
        """What stands under a table: how to read it, and the protocol."""
        return (
            "Mean ± half of the 95 % bootstrap interval; bold where the paired difference to every other "
            f"method (controls aside) excludes zero, on {FEWEST} images at least. Seconds: median an image. "
            f"{self.protocol()}."
        )

    def protocol(self) -> str:
        """How the numbers came about, in one line."""
        return "; ".join(f"{key}: {value}" for key, value in self.facts.items())

    def named(self, row: Row) -> str:
        """The method, and on how many images where it failed on some."""
        every = self.facts["images"]
        return row.method if row.images == every else f"{row.method} ({row.images} of {every})"

    def written(self, row: Row, measure: Measure, pattern: str = "{} ± {}") -> str:
        """A cell as people read it."""
        cell = row.cells[measure.name]
        if cell.mean != cell.mean:
            return "–"
        mean = f"{cell.mean:.{measure.digits}f}"
        if cell.low != cell.low:
            return mean
        return pattern.format(mean, f"{(cell.high - cell.low) / 2:.{measure.digits}f}")

    def is_best(self, row: Row, measure: Measure) -> bool:
        return self.best.get(measure.name) == row.method

    def _line(self, row: Row, bold: str, pattern: str) -> list[str]:
        cells = []
        for measure in self.measures:
            text = self.written(row, measure, pattern)
            cells.append(bold.format(text) if self.is_best(row, measure) else text)
        seconds = "–" if isnan(row.seconds) else f"{row.seconds:.2f}"
        return [self.named(row), *cells, seconds, f"{row.passes[0]} / {row.passes[1]}"]


def _columns(kept: Mapping[int, Record], protocol: Protocol) -> dict[str, Tensor]:
    """Values (N,) of every measure over the images that the method explained."""
    records = list(kept.values())
    return {
        measure.name: torch.tensor([record.values[measure.name] for record in records], dtype=torch.double)
        for measure in protocol.measures
    }


def _has_values(measure: Measure, columns: Mapping[str, Mapping[str, Tensor]]) -> bool:
    return any(not bool(values[measure.name].isnan().all()) for values in columns.values())


def _row(
    name: str, kept: Mapping[int, Record], columns: Mapping[str, Tensor], known: Sequence[Measure]
) -> Row:
    records = list(kept.values())
    return Row(
        method=name,
        images=len(records),
        cells={measure.name: mean_interval(columns[measure.name]) for measure in known},
        seconds=median(record.seconds for record in records) if records else float("nan"),
        passes=records[0].passes if records else (0, 0),
    )


def _aligned(kept: Mapping[int, Record], values: Tensor, images: Sequence[int]) -> Tensor:
    """Values in the order of all images, NaN where this method has none."""
    place = {index: number for number, index in enumerate(kept)}
    gap = torch.tensor(torch.nan, dtype=torch.double)
    return torch.stack([values[place[index]] if index in place else gap for index in images])


def _surely_best(aligned: Mapping[str, Mapping[str, Tensor]], measure: Measure) -> str | None:
    """The method that beats each other one by a paired interval that excludes zero.

    Only images that all of them have a value for count, and of fewer than `FEWEST` nothing is sure: the
    interval of a bootstrap is too narrow then.
    """
    sign = 1 if measure.higher else -1
    values = {name: sign * found[measure.name] for name, found in aligned.items()}
    values = {name: found for name, found in values.items() if not found.isnan().all()}
    if len(values) < 2:
        return None
    common = ~torch.stack(list(values.values())).isnan().any(dim=0)
    if int(common.sum()) < FEWEST:
        return None
    values = {name: found[common] for name, found in values.items()}
    first = max(values, key=lambda name: float(values[name].mean()))
    others = (found for name, found in values.items() if name != first)
    return first if all(paired_bootstrap(values[first], other).low > 0 for other in others) else None


def plain(cell: Interval) -> dict[str, float | None]:
    """As JSON has it: None where a value is undefined."""
    return {key: None if value != value else value for key, value in cell._asdict().items()}


def escaped(text: str) -> str:
    """Fit for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)
