"""What a reproduction found, as JSON and as a page of LaTeX; the page of HTML is of `report`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from dprotonet.experiment.compare.table import escaped
from dprotonet.experiment.reproduce.compared import Cell, ComparedTable, Row
from dprotonet.experiment.reproduce.reproduction import Shown
from dprotonet.version import __version__

NOTE = (
    "Ours with its 95 % interval: Wilson's over test images for accuracies, the bootstrap's over images for "
    "maps. To every row apply the deviations of docs/fidelity.md that are no settings: Adam for SGD, the "
    "sign of Sep, images held out for validation. "
    "Numbers in brackets name deviations from the paper, listed at the end; what the paper leaves open is in "
    "docs/fidelity.md."
)


@dataclass(frozen=True)
class Pages:
    """Everything that was asked for, in the order of the paper."""

    title: str
    shown: Sequence[Shown]
    deviations: Sequence[str]
    folder: Path  # pictures are named relative to it

    def content(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {
            "title": self.title,
            "version": __version__,
            "note": NOTE,
            "items": [_item(item, self.folder) for item in self.shown],
            "deviations": list(self.deviations),
        }

    def latex(self) -> str:
        """A document of its own, to be made in its folder; needs booktabs and graphicx."""
        head = [
            r"\documentclass{article}",
            r"\usepackage[margin=2cm]{geometry}",
            r"\usepackage{booktabs,graphicx}",
            r"\begin{document}",
            rf"\section*{{{escaped(self.title)}}}",
            escaped(NOTE),
        ]
        body = [line for item in self.shown for line in _latex_item(item, self.folder)]
        notes = [rf"\item {escaped(text)}" for text in self.deviations]
        listed = [r"\subsection*{Deviations}", r"\begin{enumerate}", *notes, r"\end{enumerate}"]
        return "\n".join([*head, *body, *(listed if notes else []), r"\end{document}", ""])

    def markdown(self) -> str:
        """The tables alone, for a page of documentation."""
        lines = [f"# {self.title}", "", NOTE]
        for item in self.shown:
            for table in item.tables:
                lines += ["", f"## {_numbered(item.name)}: {item.title}", "", *_markdown(table)]
        lines += ["", "## Deviations", ""] if self.deviations else []
        lines += [f"{number}. {text}" for number, text in enumerate(self.deviations, start=1)]
        return "\n".join([*lines, ""])


def written(cell: Cell) -> tuple[str, str]:
    """The paper's number and ours, as people read them; – where there is none."""
    paper = "–" if cell.paper is None else max(f"{cell.paper:.{cell.digits}f}", f"{cell.paper:g}", key=len)
    if cell.ours is None or isnan(cell.ours):
        return paper, "–"
    ours = f"{cell.ours:.{cell.digits}f}"
    if cell.low is None or cell.high is None or isnan(cell.low):
        return paper, ours
    return paper, f"{ours} [{cell.low:.{cell.digits}f}, {cell.high:.{cell.digits}f}]"


def length(table: ComparedTable, row: Row) -> str:
    """Epochs and steps of a row's last run, where it has one."""
    epochs, steps = table.length.get(row.name, (float("nan"),) * 2)
    return "" if isnan(steps) else f"{epochs:.0f} epochs, {steps:.0f} steps"


def _item(item: Shown, folder: Path) -> dict[str, Any]:
    return {
        "name": item.name,
        "title": item.title,
        "tables": [
            {
                "title": table.title,
                "rows": [
                    {
                        "name": row.name,
                        "cells": [
                            {"measure": head, **_known(cell)}
                            for head, cell in zip(table.heads, row.cells, strict=True)
                        ],
                        "deviations": list(row.deviations),
                        "training": length(table, row),
                    }
                    for row in table.rows
                ],
            }
            for table in item.tables
        ],
        "pictures": {name: str(path.relative_to(folder)) for name, path in item.pictures.items()},
        "lacking": list(item.lacking),
    }


def _known(cell: Cell) -> Mapping[str, float | None]:
    values = {"paper": cell.paper, "ours": cell.ours, "low": cell.low, "high": cell.high}
    return {key: None if value is None or isnan(value) else value for key, value in values.items()}


def _markdown(table: ComparedTable) -> list[str]:
    heads = [f"{head}, {whose}" for head in table.heads for whose in ("paper", "ours")]
    lines = [f"| {' | '.join([table.title, *heads, 'training'])} |", "|---" * (len(heads) + 2) + "|"]
    for row in table.rows:
        marks = " ".join(f"[{number}]" for number in row.deviations)
        cells = [text for cell in row.cells for text in written(cell)]
        lines.append(f"| {' | '.join([f'{row.name} {marks}', *cells, length(table, row)])} |")
    return lines


def _latex_item(item: Shown, folder: Path) -> list[str]:
    lines = ["", rf"\subsection*{{{escaped(_numbered(item.name))}: {escaped(item.title)}}}"]
    for table in item.tables:
        lines += ["", r"\noindent " + escaped(table.title), "", r"\smallskip\resizebox{\textwidth}{!}{%"]
        lines += [r"\begin{tabular}{l" + "rr" * len(table.heads) + "l}", r"\toprule"]
        heads = [rf"\multicolumn{{2}}{{c}}{{{escaped(head)}}}" for head in table.heads]
        lines += [" & ".join(["", *heads, ""]) + r" \\"]
        lines += [" & ".join(["", *["paper", "ours"] * len(table.heads), "training"]) + r" \\", r"\midrule"]
        for row in table.rows:
            marks = "".join(f"[{number}]" for number in row.deviations)
            cells = [escaped(text) for cell in row.cells for text in written(cell)]
            name = escaped(row.name) + (rf" {{\tiny {marks}}}" if marks else "")
            lines.append(" & ".join([name, *cells, escaped(length(table, row))]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}}"]
    for name, path in item.pictures.items():
        shown = rf"\includegraphics[width=\textwidth]{{{path.relative_to(folder)}}}"
        lines += ["", rf"\noindent {escaped(name)}", "", shown]
    lines += [rf"\par\noindent Not there: {escaped(text)}." for text in item.lacking]
    return lines


def _numbered(name: str) -> str:
    kind, _, number = name.partition("-")
    return f"{kind.capitalize()} {number}"
