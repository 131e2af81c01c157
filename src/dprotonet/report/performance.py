"""How good the model is: measured now, or as an earlier `dprotonet evaluate` left it in the run folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dprotonet.experiment.evaluation import Evaluation
from dprotonet.figures import confusion_figure
from dprotonet.metrics.classification import wilson_interval
from dprotonet.report.about import described_data
from dprotonet.report.content import ClassScore, Figure, Performance, Picture
from dprotonet.report.embed import WIDE, embedded_picture
from dprotonet.report.words import percent

TABLE = 30  # so many classes fit into a table of numbers; more are drawn


def measured(evaluation: Evaluation, *, data: str) -> Performance:
    """The numbers of an evaluation that was just made."""
    return _performance(evaluation.summary(), classes=evaluation.classes, data=data, origin="measured")


def stored(folder: Path, classes: Sequence[str], *, data: str) -> Performance | None:
    """Those of evaluation/test.json; None where there are none of these classes. `data` is the run's own."""
    path = folder / "evaluation" / "test.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        confusion = torch.tensor(summary["confusion"], dtype=torch.long)
        if list(summary["per_class"]) != list(classes) or confusion.shape != (len(classes),) * 2:
            return None
        known = str(summary.get("data", data))  # an older file does not say
        return _performance(
            summary, classes=classes, data=described_data(known), origin="evaluation/test.json"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _performance(
    summary: Mapping[str, Any], *, classes: Sequence[str], data: str, origin: str
) -> Performance:
    confusion = tuple(tuple(row) for row in summary["confusion"])
    return Performance(
        split=str(summary["split"]),
        data=data,
        origin=origin,
        accuracy=summary["accuracy"],
        balanced_accuracy=summary["balanced_accuracy"],
        auroc=summary.get("auroc"),
        figures=tuple(_figures(summary, confusion, classes)),
        classes=tuple(_score(number, row, classes) for number, row in enumerate(confusion)),
        confusion=confusion,
        matrix=None if len(classes) <= TABLE else _drawn(confusion, classes),
    )


def _figures(
    summary: Mapping[str, Any], confusion: Sequence[Sequence[int]], classes: Sequence[str]
) -> list[Figure]:
    total, right = int(summary["images"]), sum(row[place] for place, row in enumerate(confusion))
    low, high = wilson_interval(right, total)
    surely = f"; on more images of the same kind likely {percent(low)} to {percent(high)}" if total else ""
    found = [
        Figure(
            "Accuracy",
            percent(summary["accuracy"]),
            f"right on {right} of {total} test images{surely} (95\u202f% interval)",
        ),
        Figure(
            "Balanced accuracy",
            percent(summary["balanced_accuracy"]),
            "mean over classes, so that a rare class counts as much as a common one",
        ),
    ]
    return found + _of_two_classes(summary, classes)


def _of_two_classes(summary: Mapping[str, Any], classes: Sequence[str]) -> list[Figure]:
    if len(classes) != 2 or summary.get("auroc") is None:
        return []
    negative, positive = classes
    said = [
        Figure(
            "AUROC",
            f"{summary['auroc']:.3f}",
            f"chance that an image of {positive} gets a higher probability of {positive} than one of "
            f"{negative}; 0.5 is guessing, 1 is perfect",
        )
    ]
    for name, subject in (("sensitivity", positive), ("specificity", negative)):
        if summary.get(name) is not None:
            said.append(
                Figure(
                    name.capitalize(),
                    percent(summary[name]),
                    f"share of the images of {subject} that were recognised as such",
                )
            )
    return said


def _score(number: int, row: Sequence[int], classes: Sequence[str]) -> ClassScore:
    others = [(count, -place) for place, count in enumerate(row) if place != number and count]
    times, place = max(others, default=(0, 0))
    return ClassScore(classes[number], sum(row), row[number], classes[-place] if times else None, times)


def _drawn(confusion: Sequence[Sequence[int]], classes: Sequence[str]) -> Picture:
    figure = confusion_figure(torch.tensor(confusion), classes=classes)
    alt = (
        f"Confusion matrix of {len(classes)} classes: rows are the true classes, columns what the model "
        "said; the table of classes says the same in numbers."
    )
    return embedded_picture(figure, alt, longest=WIDE)
