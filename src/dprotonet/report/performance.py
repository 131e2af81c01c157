"""How good the model is: measured now, or as an earlier `dprotonet evaluate` left it in the run folder."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from dprotonet.experiment.evaluation.calibration import reliability_picture
from dprotonet.experiment.evaluation.evaluation import Evaluation
from dprotonet.experiment.evaluation.positive_class import asked_positive
from dprotonet.figures import confusion_figure
from dprotonet.files import read_json
from dprotonet.metrics.classification import auroc_interval, wilson_interval
from dprotonet.report.about import described_data
from dprotonet.report.content import ClassScore, Figure, Performance, Picture, Probabilities
from dprotonet.report.embed import WIDE, embedded_picture
from dprotonet.report.words import counted, percent
from dprotonet.training.checkpoint import weights_digest

FILE = "evaluation/test.json"  # in the run folder
SQUARE = 640  # edge of the reliability diagram
TABLE = 30  # so many classes fit into a table of numbers; more are drawn


def measured_performance(evaluation: Evaluation, *, data: str) -> Performance:
    """The numbers of an evaluation that was just made."""
    return _performance(evaluation.summary(), classes=evaluation.classes, data=data, origin="measured")


class Stored(NamedTuple):
    """What the run folder has, or else in words what it lacks and what to do about it."""

    performance: Performance | None
    lack: str = ""


def stored(folder: Path, network: nn.Module, classes: Sequence[str]) -> Stored:
    """The numbers of evaluation/test.json, if they are of this network's weights and of these classes."""
    try:
        summary = read_json(folder / FILE)
        if summary.get("weights") != weights_digest(network):  # an older file does not say
            return Stored(None, f"{FILE} is not known to be of these weights: evaluate again")
        confusion = torch.tensor(summary["confusion"], dtype=torch.long)
        if list(summary["per_class"]) != list(classes) or confusion.shape != (len(classes),) * 2:
            return Stored(None, f"{FILE} is of other classes: evaluate again")
        data = described_data(str(summary["data"]))
        return Stored(_performance(summary, classes=classes, data=data, origin=FILE))
    except FileNotFoundError:
        return Stored(None, "the run folder has no evaluation: make one")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RuntimeError):
        return Stored(None, f"{FILE} is damaged: evaluate again")


def stored_positive(folder: Path, classes: Sequence[str]) -> str | None:
    """The positive class that `dprotonet evaluate` was last asked for, whatever the weights were."""
    try:
        summary = read_json(folder / FILE)
        name, asked = summary["positive"], asked_positive(summary.get("positive_reason"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return name if asked and len(classes) == 2 and name in classes else None


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
        probabilities=_probabilities(summary),
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


def _probabilities(summary: Mapping[str, Any]) -> Probabilities | None:
    """None where there is no image, or where an older file does not tell."""
    if "ece_by_chance" not in summary or summary["ece"] is None:
        return None
    chance, above = summary["ece_by_chance"], summary["above_99_5"]
    figures = (
        Figure(
            "Calibration error",
            f"{summary['ece']:.3f}",
            "how far probabilities are from the share that is right, on average over groups of like "
            f"probability (ECE); with so few images even true probabilities give {chance['mean']:.3f} by "
            f"chance, and 19 times in 20 less than {chance['high']:.3f}",
        ),
        Figure("Brier score", f"{summary['brier']:.3f}", "their squared error; 0 is best, 2 worst"),
        Figure(
            f"Answers above {percent(0.995)}",
            f"{above['answers']}",
            f"of which {above['wrong']} were wrong; one in 200 may be",
        ),
    )
    picture = reliability_picture(summary["reliability"])
    alt = (
        "Reliability diagram: for each group of answers the share that was right, over what was stated. "
        + "; ".join(_said(item) for item in summary["reliability"] if item["images"])
    )
    diagram = None if picture is None else embedded_picture(picture, alt, longest=SQUARE)
    return Probabilities(bool(summary["calibrated"]), figures, diagram)


def _said(item: Mapping[str, Any]) -> str:
    stated, right = percent(item["confidence"], 0), percent(item["accuracy"], 0)
    return f"stated {stated}, right {right} ({counted(item['images'], 'image')})"


def _of_two_classes(summary: Mapping[str, Any], classes: Sequence[str]) -> list[Figure]:
    if len(classes) != 2 or summary.get("auroc") is None:
        return []
    positive = summary["positive"]
    (negative,) = (name for name in classes if name != positive)
    rows = {name: summary["confusion"][place] for place, name in enumerate(classes)}
    hits, misses = (sum(rows[name]) for name in (positive, negative))
    said = [
        Figure(
            "AUROC",
            f"{summary['auroc']:.3f}",
            f"chance that an image of {positive} gets a higher probability of {positive} than one of "
            f"{negative}; 0.5 is guessing, 1 is perfect"
            f"{_between(*auroc_interval(summary['auroc'], hits, misses), area=True)}",
        )
    ]
    why = {"sensitivity": _why(summary)}
    for name, subject in (("sensitivity", positive), ("specificity", negative)):
        if summary.get(name) is not None:
            said.append(
                Figure(
                    name.capitalize(),
                    percent(summary[name]),
                    f"share of the images of {subject} that were recognised as such"
                    f"{_between(*_recall_interval(rows, subject, classes))}{why.get(name, '')}",
                )
            )
    return said


def _recall_interval(
    rows: Mapping[str, Sequence[int]], name: str, classes: Sequence[str]
) -> tuple[float, float]:
    return wilson_interval(rows[name][classes.index(name)], sum(rows[name]))


def _between(low: float, high: float, *, area: bool = False) -> str:
    """A 95 % interval in words, of a share or of an AUROC; nothing where there is none."""
    if math.isnan(low):
        return ""
    start, end = (f"{value:.3f}" if area else percent(value) for value in (low, high))
    return f"; on more images of the same kind likely {start} to {end} (95\u202f% interval)"


def _why(summary: Mapping[str, Any]) -> str:
    """Why the positive class is that one; an older file does not say."""
    reason = summary.get("positive_reason")
    return f"; {summary['positive']} is the positive class ({reason})" if reason else ""


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
