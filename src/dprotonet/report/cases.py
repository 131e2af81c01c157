"""Single images explained: what the model said, what speaks for it, and what spoke for a missed truth.

`Studied` is an image with its prediction; `Places` are heatmaps in images by image and prototype, and in
sources by prototype. Where a heatmap is missing the row still has its numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.experiment.explaining.pictures import boxed_place, place_picture
from dprotonet.experiment.explaining.row_marks import RowMark, row_marks
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.image_like import name_of
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.figures import overlay
from dprotonet.figures.style import sentence
from dprotonet.report.content import Argument, CaseRow, Likely, Picture, ReportCase
from dprotonet.report.embed import CASE, ROW, embedded
from dprotonet.report.prototypes import whereabouts
from dprotonet.report.side_by_side import Training, compared

LIKELY = 4  # classes named beside an image


@dataclass(frozen=True)
class Studied:
    """An image of a split with its prediction, and the classes whose evidence is shown."""

    index: int
    image: Tensor  # (3, H, W) uint8
    name: str
    truth: int
    prediction: Prediction
    evidence: Mapping[int, Sequence[EvidenceItem]]  # by class: the predicted, then a missed one
    answer: Answer
    contrast: str = ""  # why the predicted class and not the next one

    def items(self, top: int) -> list[EvidenceItem]:
        """The prototypes to be shown, each once."""
        shown = [item for found in self.evidence.values() for item in found[:top]]
        return list({item.prototype: item for item in shown}.values())


@dataclass(frozen=True)
class Places:
    """Heatmaps (H, W) in [0, 1]."""

    images: Mapping[tuple[int, int], Tensor]  # by image and prototype
    sources: Mapping[int, Tensor]
    marks: Mapping[tuple[int, int], RowMark] = field(default_factory=dict)  # by image and prototype


def marks_of(
    model: Model, images: Sequence[Studied], known: Mapping[tuple[int, int], RowMark], *, top: int
) -> dict[tuple[int, int], RowMark]:
    """What the rows of these images are worth, by image and prototype; the known are not looked at again."""
    chosen = [[row for row in item.items(top) if (item.index, row.prototype) not in known] for item in images]
    found = row_marks(model, [item.image for item in images], chosen)
    return dict(known) | {
        (image.index, item.prototype): mark
        for image, items, marks in zip(images, chosen, found, strict=True)
        for item, mark in zip(items, marks, strict=True)
    }


def studied(model: Model, data: ImageData, indices: Sequence[int]) -> list[Studied]:
    """Predictions of these images of a split."""
    samples = [data[index] for index in indices]
    answers = model.answers([sample.image for sample in samples])
    return [
        Studied(
            index,
            sample.image,
            sample.name,
            sample.label,
            answer.prediction(name_of(sample.image)),
            _asked(answer, sample.label),
            answer,
            _contrast(answer),
        )
        for index, sample, answer in zip(indices, samples, answers, strict=True)
    ]


def _asked(answer: Answer, truth: int) -> dict[int, Sequence[EvidenceItem]]:
    """Evidence for the predicted class and for a missed one; none of a black box."""
    asked = {label: answer.evidence(label) for label in (answer.label(), truth)}
    return {label: items for label, items in asked.items() if items}


def _contrast(answer: Answer) -> str:
    """Why the predicted class and not the likeliest other one, in a sentence."""
    logits = answer.logits()
    label = answer.label()
    rival = int(logits.index_fill(0, torch.tensor([label]), -torch.inf).argmax())
    return answer.contrast(label, rival).sentence


def case(
    model: Model,
    item: Studied,
    places: Places,
    sources: Tensor | None,
    *,
    top: int,
    training: Training | None = None,
) -> ReportCase:
    """The image as the page shows it; sources (P, 3, H, W) uint8."""
    truth, said = model.classes[item.truth], item.prediction.class_name
    likely = sorted(item.prediction.probabilities.items(), key=lambda pair: -pair[1])
    shown = [pair for place, pair in enumerate(likely) if place < LIKELY or pair[0] == truth]
    return ReportCase(
        name=item.name,
        truth=truth,
        said=said,
        probability=item.prediction.probability,
        picture=embedded(item.image, f"Test image {item.name} of {truth}.", longest=CASE),
        likely=tuple(Likely(name, share, name == truth) for name, share in shown),
        arguments=tuple(
            _argument(model.classes, item, label, places, sources, top=top)
            for label in item.evidence
            if sources is not None
        ),
        warning=sentence(warning_of(item.prediction.distance)),
        calibrated=item.prediction.calibrated,
        contrast=item.contrast,
        compared=compared(model, item.image, item.answer, item.truth, training),
    )


def _argument(
    classes: Sequence[str], item: Studied, label: int, places: Places, sources: Tensor, *, top: int
) -> Argument:
    evidence = item.evidence[label]
    shown = evidence[:top]
    said, right = label == item.prediction.label, label == item.truth
    role = (
        "what the model said, rightly" if said and right else "what the model said" if said else "the truth"
    )
    return Argument(
        class_name=classes[label],
        role=role,
        rows=tuple(_row(item, entry, places, sources[entry.prototype]) for entry in shown),
        others=len(evidence) - len(shown),
        score=math.fsum(entry.contribution for entry in evidence),
    )


def _row(item: Studied, entry: EvidenceItem, places: Places, source: Tensor) -> CaseRow:
    origin, mark = places.sources.get(entry.prototype), places.marks.get((item.index, entry.prototype))
    where = "" if origin is None else f", coloured: the prototype lies {whereabouts(origin)}"
    told = f"Training image {entry.source} of {entry.class_name}{where}."
    drawn = (
        place_picture(source, entry.source_place)
        if origin is None
        else boxed_place(overlay(source, origin), entry.source_place)
    )
    return CaseRow(
        prototype=entry.prototype,
        class_name=entry.class_name,
        source=entry.source,
        place=_placed(item, entry, places.images.get((item.index, entry.prototype))),
        source_picture=embedded(drawn, told, longest=ROW),
        source_placed=origin is not None or entry.source_place is not None,
        similarity=entry.similarity,
        weight=entry.weight,
        points=entry.contribution,
        like=entry.words,
        ahead=entry.ahead,
        mark="" if mark is None else mark.said,
        differ="" if mark is None else mark.warning,
    )


def _placed(item: Studied, entry: EvidenceItem, heatmap: Tensor | None) -> Picture | None:
    """Where the image looks like the prototype: its heatmap, else the place itself, if it has one."""
    if heatmap is None and entry.place is None:
        return None
    if heatmap is None:
        alt = "The place of this image that looks like the prototype, large."
        return embedded(place_picture(item.image, entry.place), alt, longest=ROW)
    alt = f"This image, coloured: the resemblance lies {whereabouts(heatmap)}."
    return embedded(boxed_place(overlay(item.image, heatmap), entry.place), alt, longest=ROW)
