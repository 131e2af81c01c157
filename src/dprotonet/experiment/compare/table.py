"""The table of a comparison: mean and interval of every measure, bold only where the best is surely the best.

One table, five clothes: terminal (drawn by the command), CSV, JSON, Markdown and LaTeX. A control is never
the best, and columns that nobody has a value for are left out.
"""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dprotonet.experiment.compare.judging import optimised
from dprotonet.experiment.compare.method import CONTROLS, Method
from dprotonet.experiment.compare.run import Results
from dprotonet.experiment.compare.store import Record
from dprotonet.metrics.comparison import Interval, mean_interval, paired_bootstrap
from dprotonet.metrics.judges import GROUPS, asks
from dprotonet.metrics.measures import Measure, Protocol

ARROWS = {True: "↑", False: "↓"}
OWN = "‡"  # behind a number: the method optimises what the column measures
FEWEST = 10  # images that a difference must rest on to be called sure
BACKSLASH = "\\"
_LATEX = {letter: BACKSLASH + letter for letter in "_%&#${}"}
_LATEX |= {BACKSLASH: r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"±": r"$\pm$", "–": "--", OWN: r"$^\ddagger$"}


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
    optimised: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # method to measures; with judges
    judged: bool = False  # there are judges beyond the usual measures: columns are grouped by what they ask

    @classmethod
    def of(
        cls,
        results: Results,
        protocol: Protocol,
        *,
        network: str | None = None,
        measures: Sequence[Measure] | None = None,
        controls: Collection[str] = CONTROLS,
        methods: Sequence[Method] = (),
    ) -> "Table":
        """`measures` are the columns, by default those that have values; `controls` are never the best.

        Of `methods` the table says, where there are judges, which measures they optimise themselves.
        """
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
        made_for = {method.name: optimised(method, known) for method in methods if protocol.judges}
        made_for = {name: names for name, names in made_for.items() if names}
        return cls(tuple(rows), tuple(known), sure, facts, made_for, bool(protocol.judges))

    def groups(self) -> dict[str, list[Measure]]:
        """Columns by what they ask; none unless there are judges."""
        found = {group: [m for m in self.measures if asks(m.name) == group] for group in GROUPS}
        return {group: measures for group, measures in found.items() if measures} if self.judged else {}

    def summary(self) -> dict[str, Any]:
        """Everything as plain numbers; None where a value is undefined."""
        return {
            "protocol": dict(self.facts),
            "surely best": dict(self.best),
            **self._judged_summary(),
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

    def _judged_summary(self) -> dict[str, Any]:
        if not self.judged:
            return {}
        asked = {group: [measure.name for measure in found] for group, found in self.groups().items()}
        return {"asks": asked, "optimises": {name: list(found) for name, found in self.optimised.items()}}

    def csv(self) -> str:
        """One line a method: mean, low and high of every measure, the cost, and the protocol."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        parts = ("", " low", " high")
        heads = [f"{measure.name}{part}" for measure in self.measures for part in parts]
        more = ["optimises"] if self.judged else []
        writer.writerow(["method", "images", *heads, "seconds", "forward", "backward", "protocol", *more])
        for row in self.rows:
            cells = [value for measure in self.measures for value in row.cells[measure.name]]
            written = ["" if value != value else f"{value:.6g}" for value in cells]
            seconds = "" if isnan(row.seconds) else f"{row.seconds:.4g}"
            made_for = ["; ".join(self.optimised.get(row.method, ()))] if self.judged else []
            line = [row.method, row.images, *written, seconds, *row.passes, self.protocol(), *made_for]
            writer.writerow(line)
        return text.getvalue()

    def markdown(self) -> str:
        """For a README or a pull request; with judges a table for each question."""
        groups = self.groups()
        if not groups:
            return self._markdown(self.measures) + "\n" + self.note() + "\n"
        tables = (f"**{group}**\n\n{self._markdown(found)}" for group, found in groups.items())
        return "\n".join(tables) + "\n" + self.note() + "\n"

    def _markdown(self, measures: Sequence[Measure]) -> str:
        heads = ["method", *(f"{m.name} {ARROWS[m.higher]}" for m in measures), "seconds", "F / B"]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for row in self.rows:
            name, *cells = self._line(row, measures, "**{}**", "{} ± {}")
            lines.append(f"| {' | '.join([name.replace('|', BACKSLASH + '|'), *cells])} |")
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A tabular that needs the package booktabs; with judges one for each question."""
        groups = self.groups() or {"": list(self.measures)}
        tables = [self._latex(group, measures) for group, measures in groups.items()]
        note = rf"\par\smallskip{{\footnotesize {escaped(self.note())}\par}}"
        return "\n".join([*tables, note]) + "\n"

    def _latex(self, title: str, measures: Sequence[Measure]) -> str:
        arrows = {True: r"$\uparrow$", False: r"$\downarrow$"}
        heads = ["method", *(f"{m.name} {arrows[m.higher]}" for m in measures), "seconds", "F / B"]
        lines = [rf"\par\smallskip {escaped(title)}\par"] if title else []
        lines += [r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}", r"\toprule"]
        lines += [" & ".join(heads) + r" \\", r"\midrule"]
        for row in self.rows:
            cells = self._line(row, measures, r"\textbf{{{}}}", "{} $\\pm$ {}")
            lines.append(" & ".join([escaped(cells[0]), *map(_marked, cells[1:])]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def note(self) -> str:
        """What stands under a table: how to read it, and the protocol."""
        return (
            "Mean ± half of the 95 % bootstrap interval; bold where the paired difference to every other "
            f"method (controls aside) excludes zero, on {FEWEST} images at least. Seconds: median an image. "
            f"{self.protocol()}.{self._made_for()}"
        )

    def _made_for(self) -> str:
        """Which columns are no judge of which method."""
        said = "; ".join(f"{name}: {', '.join(found)}" for name, found in self.optimised.items())
        return f" {OWN}: the method optimises this itself ({said})." if said else ""

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
        own = OWN if measure.name in self.optimised.get(row.method, ()) else ""
        if cell.low != cell.low:
            return mean + own
        return pattern.format(mean, f"{(cell.high - cell.low) / 2:.{measure.digits}f}") + own

    def is_best(self, row: Row, measure: Measure) -> bool:
        return self.best.get(measure.name) == row.method

    def _line(self, row: Row, measures: Sequence[Measure], bold: str, pattern: str) -> list[str]:
        cells = []
        for measure in measures:
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


def _marked(cell: str) -> str:
    return cell.replace(OWN, _LATEX[OWN])


def escaped(text: str) -> str:
    """Fit for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in text)
