"""Why this class and not that one, in pictures: the rows' places in the image and in training images of both.

Beside the rows there is one map of the whole question, of logit less logit. Where prototypes are parts it
shows what places add to the difference, for either class (`ContrastMaps`); elsewhere it is the decoder's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explain import ExplainProgress, OnStep, places_in_images
from dprotonet.experiment.explaining.explainers import contrast_explainer
from dprotonet.experiment.explaining.pictures import boxed_place
from dprotonet.experiment.explaining.progress import StepCounter
from dprotonet.experiment.explaining.row_marks import RowMark, row_marks
from dprotonet.experiment.explaining.source_maps import SourceMaps
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.class_contrast import ClassContrast, ContrastRow
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.image_like import ImageLike, image_size, name_of
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.trained.versus import (
    ClassName,
    check_different,
    check_versus,
    class_number,
    compared_with,
)
from dprotonet.figures import overlay, two_sided
from dprotonet.figures.contrast_sheet import ContrastSheet, ContrastSheetRow, NearestPicture, contrast_sheet
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.contrast_maps import ContrastMaps
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, Preset

_NAMED = 4  # rows in which both classes agree that a sheet names


@dataclass(frozen=True, eq=False)
class ContrastPlaces:
    """A row with its place in the image, and in a training image of either class, where it has one."""

    row: ContrastRow
    place: Explanation
    source: Explanation | None
    other_source: Explanation | None
    marks: Mapping[int, RowMark]  # of the row's pair at least, by prototype

    @property
    def mark(self) -> RowMark:
        """Whether the place stays under noise."""
        return self.marks[self.row.shown.prototype]

    @property
    def warning(self) -> str:
        """Which class's training image has a place that does not look like this one; mostly nothing."""
        unlike = [item.class_name for item in self.row.pair if self.marks[item.prototype].differ]
        if len(unlike) > 1:
            return "looks unlike the places of both"
        return f"looks unlike the place of {unlike[0]}" if unlike else ""


@dataclass(frozen=True, eq=False)
class ExplainedContrast:
    """An image explained by what tells its class from another; `image` (3, H, W) uint8 as it was seen."""

    image: Tensor
    prediction: Prediction
    contrast: ClassContrast
    rows: tuple[ContrastPlaces, ...]  # what speaks against the class first
    map: Explanation  # of logit less logit
    image_size: tuple[int, int]
    source_images: dict[int, Tensor]
    replaced: bool = False  # predicted as the class to compare with, so the runner-up stands in

    def picture(
        self,
        title: str = "",
        *,
        roles: tuple[str, str] | None = None,
        nearest: Sequence[NearestPicture] = (),
        missed: str = "",
    ) -> Image.Image:
        """Both sides of every difference, and the map of them; `roles` says what each class is.

        `missed` is said after the sentence that the numbers make.
        """
        found, folded = self.contrast, self.contrast.folded(len(self.rows))
        sheet = ContrastSheet(
            title=title or self.prediction.name,
            class_name=found.class_name,
            versus=found.versus,
            roles=roles or (_role(self.prediction, found.class_name), _role(self.prediction, found.versus)),
            logits=(found.logit, found.versus_logit),
            rows=[self._drawn(row) for row in self.rows],
            folded=(folded.count, folded.ahead, folded.behind),
            sentence=f"{found.sentence} {missed}".strip(),
            agreeing=agreeing_words(found),
            nearest=nearest,
            sides=self.map.side is not None,
        )
        return contrast_sheet(self.image, self.map_picture, sheet)

    @property
    def map_picture(self) -> Tensor:
        """The map over the image, (3, H, W) uint8; in the colours of the two classes if it has sides."""
        heat, side = self.map.heatmap.cpu(), self.map.side
        return overlay(self.image, heat) if side is None else two_sided(self.image, heat, side.cpu())

    def _drawn(self, item: ContrastPlaces) -> ContrastSheetRow:
        row, shown = item.row, item.row.shown
        third = shown.class_name not in (self.contrast.class_name, self.contrast.versus)
        return ContrastSheetRow(
            f"{row.name} of {shown.class_name}" if third else row.name,
            row.points,
            row.other_points,
            boxed_place(overlay(self.image, item.place.heatmap.cpu()), shown.place),
            self._source(row.own, item.source),
            self._source(row.other, item.other_source),
            item.mark.said,
            item.warning,
        )

    def _source(self, item: EvidenceItem | None, found: Explanation | None) -> Tensor | None:
        if item is None or found is None:
            return None
        drawn = overlay(self.source_images[item.prototype], found.heatmap.cpu())
        return boxed_place(drawn, item.source_place)


def contrast_picture(model: TrainedModel, image: ImageLike, label: int, versus: int) -> Tensor | None:
    """Where two classes, by number, are told apart in an image, over it, (3, H, W) uint8 with both colours.

    None where regions are no parts: a decoder would have to find it.
    """
    by = contrast_explainer(Classifier.of_model(model))
    if not isinstance(by, ContrastMaps):
        return None
    pixels = model.pixels(image)
    (found,) = by.explain(model.inputs([pixels]), ContrastNode(model.network, [label], versus))
    assert found.side is not None
    return two_sided(pixels, found.heatmap.cpu(), found.side.cpu())


def agreeing_words(found: ClassContrast) -> str:
    """Where both classes get about the same: "They agree in: wing (1.89 and 1.88), …"."""
    told = [
        f"{row.name} ({row.points:.2f} and {row.other_points:.2f})".replace("-", "−")
        for row in found.agreeing[:_NAMED]
    ]
    rest = len(found.agreeing) - len(told)
    more = f" and {rest} more" if rest else ""
    return f"They agree in: {', '.join(told)}{more}." if told else ""


def explain_contrast(
    model: TrainedModel,
    images: Sequence[ImageLike],
    versus: ClassName,
    *,
    target: ClassName | None = None,
    top: int = 3,
    preset: str | Preset = "fast",
    on_step: OnStep | None = None,
) -> list[ExplainedContrast]:
    """Why each image is what it was taken for (or `target`) and not `versus`, a class or "runner-up".

    The `top` largest differences get a row. An image that was taken for `versus` itself is compared with its
    runner-up, and `replaced` is true.
    """
    model.check_single()
    if top < 1:
        raise UserError(f"top is {top}; at least one row has to be explained")
    model.check_sources()
    owner = "the run"
    check_versus(versus, model.classes, owner=owner)
    if target is not None:
        asked = class_number(target, model.classes, owner=owner)
        check_different([asked], versus, model.classes, owner=owner)
    pixels = [model.pixels(image) for image in images]
    answers = model.answers(images)
    labels = _labels(model, answers, target)
    logits = torch.stack([answer.plain for answer in answers])
    names = [name_of(image) for image in images]
    others = compared_with(versus, labels, logits, classes=model.classes, owner=owner)
    pairs = list(zip(labels.tolist(), others.versus.tolist(), strict=True))
    found = [answer.contrast(*pair) for answer, pair in zip(answers, pairs, strict=True)]
    rows, sources, maps = _explained(model, pixels, found, pairs, top=top, preset=preset, on_step=on_step)
    predictions = [answer.prediction(name) for name, answer in zip(names, answers, strict=True)]
    of_sources = SourceMaps(model, MDM(preset=preset))
    kept = {number: of_sources.image(number) for number in sources}
    told = list(zip(predictions, found, rows, maps, strict=True))
    return [
        ExplainedContrast(seen, *parts, image_size(image), kept, replaced)
        for seen, parts, image, replaced in zip(pixels, told, images, others.replaced.tolist(), strict=True)
    ]


def _labels(model: TrainedModel, answers: Sequence[Answer], target: ClassName | None) -> Tensor:
    if target is None:
        return torch.tensor([answer.label() for answer in answers])
    return torch.full((len(answers),), class_number(target, model.classes, owner="the run"))


def _explained(
    model: TrainedModel,
    pixels: Sequence[Tensor],
    found: Sequence[ClassContrast],
    pairs: Sequence[tuple[int, int]],
    *,
    top: int,
    preset: str | Preset,
    on_step: OnStep | None,
) -> tuple[list[tuple[ContrastPlaces, ...]], dict[int, Explanation], list[Explanation]]:
    """Rows with their places, heatmaps of sources by prototype, and the map of each image."""
    decoder = MDM(preset=preset)
    maps = SourceMaps(model, decoder)
    shown = [contrast.shown(top) for contrast in found]
    every = [item for rows in shown for row in rows for item in row.pair]
    numbers = list(dict.fromkeys(item.prototype for item in every))
    sources = maps.stored(numbers)
    lacking = [number for number in numbers if number not in sources]
    looked = [(image, row.shown) for image, rows in zip(pixels, shown, strict=True) for row in rows]
    counter = StepCounter(len(lacking) + len(looked) + len(pixels))

    def observer(what: str, count: int) -> Callable[[Step], None]:
        def tell(done: int, total: int, step: Step) -> None:
            if on_step is not None:
                on_step(ExplainProgress(what, done, total, step))

        return counter.next(count, tell)

    sources |= maps.made(lacking, observer=lambda some: observer("prototypes", len(some)))
    places = iter(
        places_in_images(model, decoder, looked, observer=lambda some: observer("images", len(some)))
    )
    rows = [
        tuple(
            ContrastPlaces(row, next(places), _of(sources, row.own), _of(sources, row.other), marks)
            for row in rows
        )
        for rows, marks in zip(shown, _marks(model, pixels, shown), strict=True)
    ]
    whole: list[Explanation] = []
    by = contrast_explainer(Classifier.of_model(model), preset=preset)
    for image, (label, versus) in zip(pixels, pairs, strict=True):
        node = ContrastNode(model.network, [label], versus)
        whole += by.explain(model.inputs([image]), node, on_step=observer("images", 1))
    return rows, sources, whole


def _marks(
    model: TrainedModel, pixels: Sequence[Tensor], shown: Sequence[Sequence[ContrastRow]]
) -> list[dict[int, RowMark]]:
    """Of each image what the rows of both classes are worth, by prototype."""
    chosen = [[item for row in rows for item in row.pair] for rows in shown]
    return [
        {item.prototype: mark for item, mark in zip(items, marks, strict=True)}
        for items, marks in zip(chosen, row_marks(model, pixels, chosen), strict=True)
    ]


def _of(sources: dict[int, Explanation], item: EvidenceItem | None) -> Explanation | None:
    return None if item is None else sources[item.prototype]


def _role(prediction: Prediction, class_name: str) -> str:
    return "predicted" if class_name == prediction.class_name else ""
