"""The table of a benchmark in the paper's shape: networks down, data across, mean ± deviation over seeds."""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from dprotonet.experiment.benchmark.plan import AT_THE_END, STOPPED, Plan
from dprotonet.experiment.compare.table import escaped

LENGTHS = ("epochs", "kept epoch", "steps", "seconds")
Results = Mapping[tuple[str, str, int], Mapping[str, Any]]
_PLAIN = ("accuracy", "balanced_accuracy", "auroc", AT_THE_END)  # which nobody takes for a measure of maps


@dataclass(frozen=True)
class BenchmarkTable:
    """Every measure of every row and column, a list of one value a finished seed."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    measures: tuple[str, ...]
    values: Mapping[tuple[str, str, str], tuple[float, ...]]  # row, column, measure
    pushes: Mapping[str, tuple[float, ...]]  # of each row, what every push did to validation accuracy
    lengths: Mapping[str, tuple[float, ...]]  # of each row, means of LENGTHS over its runs
    stops: Mapping[str, str]  # of each row, what its runs stopped by
    folds: int = 0
    baselines: tuple[str, ...] = ()  # rows that are no networks

    @classmethod
    def of(cls, plan: Plan, results: Results) -> "BenchmarkTable":
        values = {
            (row, column, measure): tuple(
                result[measure]
                for (a, b, _), result in results.items()
                if (a, b) == (row, column) and result[measure] is not None
            )
            for row in plan.rows
            for column in plan.columns
            for measure in plan.measures
        }
        pushes = {
            row: tuple(
                change for (a, _, _), found in results.items() if a == row for change in found["push changes"]
            )
            for row in plan.rows
        }
        runs = {row: [found for (a, _, _), found in results.items() if a == row] for row in plan.rows}
        lengths = {row: _length(found) for row, found in runs.items()}
        stops = {row: _stops(found) for row, found in runs.items()}
        shape = plan.title, plan.rows, plan.columns, plan.measures
        baselines = tuple(dict.fromkeys(cell.row for cell in plan.cells if cell.baseline is not None))
        return cls(*shape, values, pushes, lengths, stops, plan.folds, baselines)

    def markdown(self) -> str:
        heads = ["", *self._heads()]
        lines = [f"**{self.title}**", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        lines += [f"| {row} | {' | '.join(self._cells(row, '±'))} |" for row in self.rows]
        lines += ["", self.note()]
        if any(self.pushes.values()):
            lines += [
                "",
                "Change of validation accuracy at a push, in points, mean over pushes, columns and seeds: ",
            ]
            lines += [f"- {row}: {100 * fmean(found):+.1f}" for row, found in self.pushes.items() if found]
        return "\n".join([*lines, ""])

    def latex(self) -> str:
        heads = ["", *self._heads()]
        lines = [r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}", r"\toprule"]
        lines += [" & ".join(map(escaped, heads)) + r" \\", r"\midrule"]
        lines += [" & ".join([escaped(row), *self._cells(row, r"$\pm$")]) + r" \\" for row in self.rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", f"% {self.note()}", ""])

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "column", "measure", "mean", "deviation", "seeds"])
        for (row, column, measure), found in self.values.items():
            mean, deviation = (("" if math.isnan(x) else f"{x:.6g}") for x in spread(found))
            writer.writerow([row, column, measure, mean, deviation, len(found)])
        for row, length in self.lengths.items():
            for name, value in zip(LENGTHS, length, strict=True):
                writer.writerow([row, "", name, "" if math.isnan(value) else f"{value:.6g}", "", ""])
            writer.writerow([row, "", STOPPED, self.stops[row], "", ""])
        return text.getvalue()

    def note(self) -> str:
        rest = (
            "in %; mean ± standard deviation over seeds where there are several; – not finished. Epochs, the "
            "one that was kept, optimiser steps (those of the last layer too) and seconds of training, "
            "features cached, are means over columns and seeds."
        )
        if self.baselines:
            rest += (
                f" Baselines on pooled frozen features ({', '.join(self.baselines)}) draw nothing, so that "
                "they have one value for all seeds, and no epochs."
            )
        if not self.folds:
            return f"Test split, {rest}"
        return (
            f"{self.folds}-fold cross-validation, {rest} Every training and validation image is counted "
            "once, by the network of the fold that it was held out of; AUROC is the mean over folds. The "
            "kept model of a fold was chosen on its held-out images, which flatters it a little; the one at "
            "the end was not. Test images took no part."
        )

    def _heads(self) -> list[str]:
        several = len(self.measures) > 1
        heads = [
            f"{column}, {_head(measure)}" if several or measure not in _PLAIN else column
            for column in self.columns
            for measure in self.measures
        ]
        return [*heads, *LENGTHS, STOPPED]

    def _cells(self, row: str, sign: str) -> list[str]:
        pairs = [(column, measure) for column in self.columns for measure in self.measures]
        cells = [_written(self.values[row, *pair], sign) for pair in pairs]
        cells += ["–" if math.isnan(value) else f"{value:.0f}" for value in self.lengths[row]]
        return [*cells, self.stops[row] or "–"]


def _head(measure: str) -> str:
    """Sensitivity is also a measure of maps, so it says what it is of."""
    word = measure.replace("_", " ")
    return word if measure in _PLAIN else f"{word} of the classifier"


def _length(results: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Means of LENGTHS; NaN where a run of an earlier version did not count them."""
    known = [[found[name] for found in results if found.get(name) is not None] for name in LENGTHS]
    return tuple(fmean(found) if found and len(found) == len(results) else math.nan for found in known)


def _stops(results: Sequence[Mapping[str, Any]]) -> str:
    """What ended the runs, with how many of them where they differ; empty where it is not known."""
    counts = Counter(word for found in results for word in found.get(STOPPED) or ())
    if len(counts) < 2:
        return "".join(counts)
    return ", ".join(f"{word} {number}" for word, number in counts.most_common())


def spread(found: tuple[float, ...]) -> tuple[float, float]:
    """Mean and standard deviation over seeds, NaN where there are too few."""
    return (
        fmean(found) if found else math.nan,
        stdev(found) if len(found) > 1 else math.nan,
    )


def _written(found: tuple[float, ...], sign: str) -> str:
    mean, deviation = spread(found)
    if not found:
        return "–"
    return f"{100 * mean:.1f}" + ("" if math.isnan(deviation) else f" {sign} {100 * deviation:.1f}")
