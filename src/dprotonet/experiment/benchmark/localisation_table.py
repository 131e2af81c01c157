"""Recognition and localisation side by side: a line for every network and what explains it, data by data.

Measures of maps are means over images with intervals, as in the table of `dprotonet compare`, whose lines
these are; the accuracy beside them is the network's, on all its test images.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dprotonet.experiment.benchmark.localisation import Localisation
from dprotonet.experiment.benchmark.localisation_plan import Line, LocalisationPlan
from dprotonet.experiment.benchmark.table import Results as Trained
from dprotonet.experiment.benchmark.table import spread
from dprotonet.experiment.compare.run import Results
from dprotonet.experiment.compare.table import Row, Table, escaped, plain
from dprotonet.metrics.measures import Measure

ARROWS = {True: "↑", False: "↓"}
_NAMED = 5  # images that a note names
_FOLDS = " The maps are of the network of fold 1."


@dataclass(frozen=True)
class Section:
    """One column of the plan: the table of its lines, their networks' accuracies, and who lacks truth."""

    column: str
    table: Table
    accuracy: Mapping[str, tuple[float, ...]]  # in %, of the network of each line, one value a seed
    without_truth: tuple[str, ...]  # names of images
    passed_over: tuple[str, ...]  # which have none, either, where only images with truth were taken

    @classmethod
    def of(cls, localisation: Localisation, column: str, found: Results, trained: Trained) -> "Section":
        plan = localisation.plan
        controls = [line.name for line in plan.line if line.control]
        table = Table.of(found, plan.protocol, measures=plan.columns, controls=controls)
        accuracy = {
            line.name: tuple(
                100 * result["accuracy"]
                for (row, place, _), result in trained.items()
                if (row, place) == (line.row, column)
            )
            for line in plan.line
        }
        lacking = {
            index for kept in found.records.values() for index, record in kept.items() if not record.located
        }
        names = tuple(found.samples[index] for index in sorted(lacking))
        return cls(column, table, accuracy, names, localisation.passed_over(column))


@dataclass(frozen=True)
class LocalisationTable:
    """All columns of a plan."""

    title: str
    plan: LocalisationPlan
    sections: tuple[Section, ...]
    judged: str  # what the accuracy is of
    first_fold: bool = False  # whose network is explained, then

    @classmethod
    def of(
        cls, localisation: Localisation, results: Mapping[str, Results], trained: Trained
    ) -> "LocalisationTable":
        """`results` by the names of columns, as `Localisation.results` gives them."""
        sections = [Section.of(localisation, column, found, trained) for column, found in results.items()]
        plan = localisation.benchmark.plan
        title = f"{plan.title}: recognition and localisation"
        judged = f"in {plan.folds}-fold cross-validation" if plan.folds else "on all test images"
        return cls(title, localisation.plan, tuple(sections), judged, first_fold=bool(plan.folds))

    def markdown(self) -> str:
        heads = self._heads(ARROWS)
        lines = [f"**{self.title}**"]
        for section in self.sections:
            lines += ["", f"{section.column}:", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
            cells = self._cells(section, "**{}**", "{} ± {}")
            lines += [f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in cells]
            lines += ["", self._counted(section)]
        return "\n".join([*lines, "", self.note(), ""])

    def latex(self) -> str:
        """Tabulars that need the package booktabs."""
        words = len(self._words(self.plan.line[0]))
        heads = [escaped(head) for head in self._heads({True: "\0", False: "\1"})]
        heads = [head.replace("\0", r"$\uparrow$").replace("\1", r"$\downarrow$") for head in heads]
        parts = []
        for section in self.sections:
            shape = "l" * words + "r" * (len(heads) - words)
            lines = [f"% {section.column}", r"\begin{tabular}{" + shape + "}"]
            lines += [r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
            for row in self._cells(section, r"\textbf{{{}}}", "{} $\\pm$ {}"):
                lines.append(" & ".join([*map(escaped, row[:words]), *row[words:]]) + r" \\")
            parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", f"% {self._counted(section)}"]))
        return "\n\n".join([*parts, f"% {self.note()}", ""])

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["name", "row", "column", "method", "measure", "mean", "low", "high", "images"])
        for section, line, row in self._rows():
            for name, (mean, low, high) in row.cells.items():
                numbers = ["" if math.isnan(value) else f"{value:.6g}" for value in (mean, low, high)]
                place = [line.name, line.row, section.column, line.method]
                writer.writerow([*place, name, *numbers, row.images])
        return text.getvalue()

    def summary(self) -> list[dict[str, Any]]:
        """One object a line; None where nothing is known."""
        return [
            {
                "name": line.name,
                "row": line.row,
                "column": section.column,
                "method": line.method,
                "accuracy": _known(spread(section.accuracy[line.name])[0]),
                "images": row.images,
                "seconds": _known(row.seconds),
                "forward": row.passes[0],
                "backward": row.passes[1],
                "measures": {name: plain(cell) for name, cell in row.cells.items()},
            }
            for section, line, row in self._rows()
        ]

    def content(self) -> dict[str, Any]:
        """Everything, for localisation.json."""
        return {
            "title": self.title,
            "note": self.note(),
            "columns": [
                {
                    "column": section.column,
                    "protocol": dict(section.table.facts),
                    "surely best": dict(section.table.best),
                    "without truth": list(section.without_truth),
                    "passed over": list(section.passed_over),
                }
                for section in self.sections
            ],
            "lines": self.summary(),
        }

    def note(self) -> str:
        """What stands under the table: how to read it, and the protocol."""
        chosen = f"at most {self.plan.images} test images with truth"
        if self.plan.images_per_class is not None:
            each = self.plan.images_per_class
            chosen = f"{each} test image{'s' * (each > 1)} of each class"
        facts = "; ".join(f"{key}: {value}" for key, value in self.plan.protocol.facts.items())
        return (
            f"Accuracy of the network {self.judged}, in %, ± standard deviation over seeds where there are "
            f"several. All else is of its maps, on {chosen}, drawn by seed {self.plan.seed}, the same for "
            "all lines: mean ± half of the 95 % bootstrap interval over images (seeds averaged), bold where "
            "the paired difference to every other line but controls excludes zero, on ten images at least. "
            "Each network is asked about the class that it predicts itself. Images without truth count for "
            "AD, AI, deletion and insertion only. similarity: the network's own maps. Seconds: median an "
            f"image; F / B: forward and backward passes. {facts}."
            f"{_FOLDS if self.first_fold else ''}"
        )

    def _counted(self, section: Section) -> str:
        """On how many images the lines rest, and which have no truth."""
        total, lacking = section.table.facts["images"], section.without_truth
        text = f"{total} images, {total - len(lacking)} with truth"
        flat = section.table.facts.get("flat maps")
        if lacking:
            text += f"; {len(lacking)} without: {_some(lacking)}"
        if section.passed_over:
            text += f"; {len(section.passed_over)} passed over without truth: {_some(section.passed_over)}"
        return f"{text}; maps that are the same everywhere: {flat}." if flat else f"{text}."

    def _rows(self) -> list[tuple[Section, Line, Row]]:
        return [
            (section, line, row)
            for section in self.sections
            for line, row in zip(self.plan.line, section.table.rows, strict=True)
        ]

    def _heads(self, arrows: Mapping[bool, str]) -> list[str]:
        words = ["method"] * self.plan.named + ["network", "explained by", f"accuracy {arrows[True]}"]
        measures = [f"{self._head(measure)} {arrows[measure.higher]}" for measure in self.plan.columns]
        return [*words, *measures, "seconds", "F / B"]

    def _head(self, measure: Measure) -> str:
        """Soft and percentile form told apart, and what a sensitivity is of."""
        percent = f"{100 * self.plan.keep:.10g}"
        known = {"AD": "AD, soft", "AI": "AI, soft", "AG": "AG, soft"}
        known |= {f"{name}{percent}": f"{name}, {percent} % of pixels kept" for name in ("AD", "AI")}
        top = f"{100 * self.plan.top:.10g} %"
        known["sensitivity"] = f"sensitivity of the maps, top {top} against the {self.plan.truth}"
        return known.get(measure.name, measure.name)

    def _words(self, line: Line) -> list[str]:
        return [line.name] * self.plan.named + [line.row, line.method]

    def _cells(self, section: Section, bold: str, pattern: str) -> list[list[str]]:
        found = []
        for line, row in zip(self.plan.line, section.table.rows, strict=True):
            words = self._words(line)
            if row.images < section.table.facts["images"]:
                words[0] += f" ({row.images} of {section.table.facts['images']})"
            seconds = "–" if math.isnan(row.seconds) else f"{row.seconds:.2f}"
            accuracy = _written(section.accuracy[line.name], pattern)
            measured = [
                self._cell(section.table, row, measure, bold, pattern) for measure in self.plan.columns
            ]
            found.append([*words, accuracy, *measured, seconds, f"{row.passes[0]} / {row.passes[1]}"])
        return found

    @staticmethod
    def _cell(table: Table, row: Row, measure: Measure, bold: str, pattern: str) -> str:
        text = table.written(row, measure, pattern)
        return bold.format(text) if table.is_best(row, measure) else text


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")


def _written(found: Sequence[float], pattern: str) -> str:
    mean, deviation = spread(tuple(found))
    if not found:
        return "–"
    return f"{mean:.1f}" if math.isnan(deviation) else pattern.format(f"{mean:.1f}", f"{deviation:.1f}")


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
