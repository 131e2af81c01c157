"""Recognition and localisation side by side: a line for every network and way of explaining it."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dprotonet.experiment.benchmark.localisation import Localisation, Place
from dprotonet.experiment.benchmark.table import Results, escaped, spread
from dprotonet.metrics.measures import Measure, Protocol

SHOWN = ("DICE", "IOU", "PPV", "sensitivity", "AD", "AI", "deletion", "insertion")
ACCURACY = Measure("accuracy", True, 1)


@dataclass(frozen=True)
class LocalisationTable:
    """Values of every column of data, network, method and measure, one a finished seed."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]  # network and method
    measures: tuple[Measure, ...]
    values: Mapping[tuple[str, str, str, str], tuple[float, ...]]  # column, row, method, measure
    protocol: Protocol
    images: int

    @classmethod
    def of(cls, localisation: Localisation, results: Results) -> "LocalisationTable":
        plan, found = localisation.benchmark.plan, localisation.values()
        by_name = {measure.name: measure for measure in localisation.protocol.measures}
        measures = (ACCURACY, *(by_name[name] for name in SHOWN))
        lines = [
            (row, method)
            for row in plan.rows
            for method in localisation.plan.methods
            if any((place.row, place.method) == (row, method) for place in found)
        ]
        values = {
            (column, row, method, measure.name): _seeds(found, results, (row, column, method), measure)
            for column in plan.columns
            for row, method in lines
            for measure in measures
        }
        return cls(
            f"{plan.title}: recognition and localisation",
            plan.columns,
            tuple(lines),
            measures,
            values,
            localisation.protocol,
            localisation.plan.images,
        )

    def markdown(self) -> str:
        heads = ["network", "explained by", *(f"{m.name} {'↑' if m.higher else '↓'}" for m in self.measures)]
        lines = [f"**{self.title}**"]
        for column in self.columns:
            lines += ["", f"{column}:", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
            lines += [f"| {' | '.join(cells)} |" for cells in self._cells(column, "±")]
        return "\n".join([*lines, "", self.note(), ""])

    def latex(self) -> str:
        arrows = {True: r"$\uparrow$", False: r"$\downarrow$"}
        heads = ["network", "explained by", *(f"{m.name} {arrows[m.higher]}" for m in self.measures)]
        parts = []
        for column in self.columns:
            lines = [f"% {column}", r"\begin{tabular}{ll" + "r" * len(self.measures) + "}", r"\toprule"]
            lines += [" & ".join(heads) + r" \\", r"\midrule"]
            for row, method, *cells in self._cells(column, r"$\pm$"):
                lines.append(" & ".join([escaped(row), escaped(method), *cells]) + r" \\")
            parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
        return "\n\n".join([*parts, f"% {self.note()}", ""])

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "column", "method", "measure", "mean", "deviation", "seeds"])
        for (column, row, method, measure), found in self.values.items():
            mean, deviation = (("" if math.isnan(x) else f"{x:.6g}") for x in spread(found))
            writer.writerow([row, column, method, measure, mean, deviation, len(found)])
        return text.getvalue()

    def summary(self) -> list[dict[str, Any]]:
        """One object a line of the table; None where nothing is known."""
        return [
            {
                "row": row,
                "column": column,
                "method": method,
                **{
                    measure.name: _known(spread(self.values[column, row, method, measure.name])[0])
                    for measure in self.measures
                },
            }
            for column in self.columns
            for row, method in self.lines
        ]

    def note(self) -> str:
        facts = "; ".join(f"{key}: {value}" for key, value in self.protocol.facts.items())
        return (
            f"Accuracy on all test images, in %; the rest on up to {self.images} test images with truth, the "
            "same for all networks of a data set; mean ± standard deviation over seeds where there are "
            "several. Each network is asked about the class that it predicts itself. "
            f"similarity: the network's own maps. {facts}."
        )

    def _cells(self, column: str, sign: str) -> list[list[str]]:
        return [
            [
                row,
                method,
                *(_written(self.values[column, row, method, m.name], m, sign) for m in self.measures),
            ]
            for row, method in self.lines
        ]


def _seeds(
    found: Mapping[Place, Mapping[str, float]],
    results: Results,
    line: tuple[str, str, str],
    measure: Measure,
) -> tuple[float, ...]:
    """The values of one cell, a seed each; accuracy is in per cent like AD and AI."""
    row, column, method = line
    seeds = [place.seed for place in found if (place.row, place.column, place.method) == line]
    if measure.name == "accuracy":
        return tuple(100 * results[row, column, seed]["accuracy"] for seed in seeds)
    values: Sequence[float] = [
        found[Place(row, column, seed, method)].get(measure.name, math.nan) for seed in seeds
    ]
    return tuple(value for value in values if not math.isnan(value))


def _written(found: tuple[float, ...], measure: Measure, sign: str) -> str:
    mean, deviation = spread(found)
    if not found:
        return "–"
    text = f"{mean:.{measure.digits}f}"
    return text if math.isnan(deviation) else f"{text} {sign} {deviation:.{measure.digits}f}"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
