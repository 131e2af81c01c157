"""Single images explained: what the model said, what speaks for it, and what spoke for a missed truth.

`Studied` is an image with its prediction; `Places` are heatmaps in images by image and prototype, and in
sources by prototype. Where a heatmap is missing the row still has its numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.experiment.explaining.pictures import boxed_place, place_picture
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.trained.class_evidence import ClassEvidence, class_evidence
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.trained_model import Prediction
from dprotonet.figures import overlay
from dprotonet.figures.style import sentence
from dprotonet.report.content import Argument, CaseRow, Likely, Picture, ReportCase
from dprotonet.report.embed import CASE, ROW, embedded
from dprotonet.report.prototypes import whereabouts

LIKELY = 4  # classes named beside an image


@dataclass(frozen=True)
class Studied:
    """An image of a split with its prediction, and the classes whose evidence is shown."""

    index: int
    image: Tensor  # (3, H, W) uint8
    name: str
    truth: int
    prediction: Prediction
    evidence: tuple[ClassEvidence, ...]  # none for a black box; the predicted class, then a missed one

    def items(self, top: int) -> list[EvidenceItem]:
        """The prototypes to be shown, each once."""
        shown = [item for found in self.evidence for item in found.evidence[:top]]
        return list({item.prototype: item for item in shown}.values())


@dataclass(frozen=True)
class Places:
    """Heatmaps (H, W) in [0, 1]."""

    images: Mapping[tuple[int, int], Tensor]  # by image and prototype
    sources: Mapping[int, Tensor]


def studied(model: Model, data: ImageData, indices: Sequence[int]) -> list[Studied]:
    """Predictions of these images of a split."""
    samples = [data[index] for index in indices]
    predictions = model.predict_many([sample.image for sample in samples])
    return [
        Studied(
            index,
            sample.image,
            sample.name,
            sample.label,
            prediction,
            tuple(_asked(model, prediction, sample.label)),
        )
        for index, sample, prediction in zip(indices, samples, predictions, strict=True)
    ]


def _asked(model: Model, prediction: Prediction, truth: int) -> list[ClassEvidence]:
    if not prediction.evidence:
        return []
    return [class_evidence(model, prediction, label) for label in dict.fromkeys((prediction.label, truth))]


def case(model: Model, item: Studied, places: Places, sources: Tensor | None, *, top: int) -> ReportCase:
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
            _argument(item, found, places, sources, top=top) for found in item.evidence if sources is not None
        ),
        warning=sentence(warning_of(item.prediction.distance)),
    )


def _argument(
    item: Studied, found: ClassEvidence, places: Places, sources: Tensor | None, *, top: int
) -> Argument:
    assert sources is not None
    shown = found.evidence[:top]
    said = found.label == item.prediction.label
    right = found.label == item.truth
    role = (
        "what the model said, rightly" if said and right else "what the model said" if said else "the truth"
    )
    return Argument(
        class_name=found.class_name,
        role=role,
        rows=tuple(_row(item, entry, places, sources[entry.prototype]) for entry in shown),
        others=len(found.evidence) - len(shown),
        score=found.logit,
    )


def _row(item: Studied, entry: EvidenceItem, places: Places, source: Tensor) -> CaseRow:
    origin = places.sources.get(entry.prototype)
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
