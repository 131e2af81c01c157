"""A mistake from both sides: where predicted and true class differ and agree, and what was nearest."""

from dataclasses import dataclass

from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.experiment.explaining.explain_contrast import contrast_picture
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.nearest_images import TrainingScores
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.class_contrast import ClassContrast, ContrastRow
from dprotonet.report.content import ComparedClasses, ComparedRow, NearestImage, Picture
from dprotonet.report.embed import THUMB, embedded

SHOWN = 5  # rows in which the classes differ


@dataclass(frozen=True)
class Training:
    """The training images and what all prototypes say of them, where both are at hand."""

    images: ImageData
    scores: TrainingScores


def compared(
    model: Model, image: Tensor, answer: Answer, truth: int, training: Training | None
) -> ComparedClasses | None:
    """The predicted class beside the true one; None where there is no evidence, or nothing was mistaken."""
    said = answer.label()
    if said == truth or not len(answer.scores):
        return None
    found = answer.contrast(said, truth)
    folded = found.folded(SHOWN)
    return ComparedClasses(
        said=found.class_name,
        truth=found.versus,
        logits=(found.logit, found.versus_logit),
        sentence=found.sentence,
        differing=tuple(_row(row) for row in found.shown(SHOWN)),
        others=folded.count,
        others_for=folded.ahead,
        others_against=folded.behind,
        agreeing=_agreeing(found),
        nearest=() if training is None else _nearest(answer, (said, truth), training),
        told_apart=_told_apart(model, image, said, truth),
    )


def _told_apart(model: Model, image: Tensor, said: int, truth: int) -> Picture | None:
    drawn = contrast_picture(model, image, said, truth)
    if drawn is None:
        return None
    names = model.classes[said], model.classes[truth]
    alt = "The image in grey; in blue what adds to {}, in orange what adds to {}.".format(*names)
    return embedded(drawn, alt, longest=2 * THUMB)


def _agreeing(found: ClassContrast) -> tuple[ComparedRow, ...]:
    """Those that are not among the rows that differ anyway."""
    shown = found.shown(SHOWN)
    return tuple(_row(row) for row in found.agreeing if row not in shown)


def _row(row: ContrastRow) -> ComparedRow:
    return ComparedRow(row.name, row.points, row.other_points)


def _nearest(answer: Answer, labels: tuple[int, int], training: Training) -> tuple[NearestImage, ...]:
    numbers = [(label, training.scores.nearest(answer.scores, label)) for label in labels]
    return tuple(_picture(answer, label, number, training) for label, number in numbers if number is not None)


def _picture(answer: Answer, label: int, number: int, training: Training) -> NearestImage:
    name, sample = answer.model.classes[label], training.images[number]
    alt = f"Training image {sample.name} of {name}, the nearest of its class to this image."
    return NearestImage(name, sample.name, embedded(sample.image, alt, longest=2 * THUMB))
