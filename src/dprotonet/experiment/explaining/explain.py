"""Explained predictions: the prototypes that decided, with their place in the image and in their source.

"This part of your image looks like that part of that training image." The parts are found by the MDM decoder:
for an image, the region nearest to the prototype is kept active, Eqs. (12) and (14); for the prototype's
source, see `source_maps`. All pairs of image and prototype go through the network together.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from PIL import Image
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explainers import row_node
from dprotonet.experiment.explaining.pictures import boxed_place
from dprotonet.experiment.explaining.progress import StepCounter
from dprotonet.experiment.explaining.row_marks import RowMark, row_marks
from dprotonet.experiment.explaining.source_maps import Observer, SourceMaps
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.image_like import ImageLike, image_size
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import ExplanationRow, explanation_sheet, overlay
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, Preset

_PAIRS = 32  # of an image and a prototype, explained at a time: bounds the memory
_IMAGES = 32  # predicted at a time
_LIKELY = 4  # classes named on a sheet


class ExplainProgress(NamedTuple):
    """How far the work is, over all images and prototypes, and the step that was just taken."""

    what: str  # "prototypes" in their sources, or "images"
    done: int
    total: int
    step: Step


T = TypeVar("T")
OnStep = Callable[[ExplainProgress], None]


@dataclass(frozen=True, eq=False)
class ExplainedRow:
    """One prototype: its part in the logit, where the image looks like it, where it lies in its source."""

    item: EvidenceItem
    input: Explanation
    source: Explanation
    source_image: Tensor  # (3, H, W) uint8
    mark: RowMark | None = None  # does it stay under noise, do its two places look alike


@dataclass(frozen=True, eq=False)
class ExplainedPrediction:
    """A prediction with the places of its weightiest prototypes; `image` (3, H, W) uint8 as it was seen.

    `image_size` is height and width of the image itself, before it was squashed.
    """

    image: Tensor
    prediction: Prediction
    rows: tuple[ExplainedRow, ...]
    image_size: tuple[int, int]
    weights: tuple[float, float] = (0.5, 0.5)  # α and β of Eq. (18) on the sheet

    @property
    def rest(self) -> float:
        """What all other prototypes contribute together."""
        return self.prediction.logit - sum(row.item.contribution for row in self.rows)

    def picture(self, title: str = "") -> Image.Image:
        """The image, the prototypes that decided, their places, and the sum that makes the logit."""
        likely = sorted(self.prediction.probabilities.items(), key=lambda pair: -pair[1])[:_LIKELY]
        return explanation_sheet(
            self.image,
            title=title or self.prediction.name,
            probabilities=likely,
            rows=[drawn_row(row, self.image, self.weights) for row in self.rows],
            rest=self.rest,
            logit=self.prediction.logit,
            notice=warning_of(self.prediction.distance),
        )

    def _repr_png_(self) -> bytes:
        """As a notebook shows it: the sheet."""
        stream = io.BytesIO()
        self.picture().save(stream, format="PNG")
        return stream.getvalue()


def drawn_row(row: ExplainedRow, image: Tensor, weights: tuple[float, float]) -> ExplanationRow:
    """A row as a sheet shows it, of `image` (3, H, W) uint8; weights are α and β of Eq. (18)."""
    alpha, beta = weights

    def blend(image: Tensor, found: Explanation) -> Tensor:
        return overlay(image, found.heatmap.cpu(), image_weight=alpha, heatmap_weight=beta)

    return ExplanationRow(
        boxed_place(blend(image, row.input), row.item.place),
        boxed_place(blend(row.source_image, row.source), row.item.source_place),
        row.item.class_name,
        row.item.prototype,
        row.item.similarity,
        row.item.weight,
        row.item.contribution,
        row.item.part,
        row.item.place is not None,
        row.item.ahead,
        "" if row.mark is None else row.mark.said,
        "" if row.mark is None else row.mark.warning,
    )


def explain(
    model: TrainedModel,
    images: Sequence[ImageLike],
    *,
    top: int = 3,
    preset: str | Preset = "fast",
    on_step: OnStep | None = None,
) -> list[ExplainedPrediction]:
    """Each image's prediction with heatmaps of the `top` prototypes that contribute most to it."""
    if top < 1:
        raise UserError(f"top is {top}; at least one prototype has to be explained")
    model.check_single()
    model.check_sources()
    pixels = [model.pixels(image) for image in images]
    predictions = [item for block in _blocks(images, _IMAGES) for item in model.predict_many(block)]
    chosen = [prediction.evidence[:top] for prediction in predictions]
    rows = explained_rows(model, pixels, chosen, preset=preset, on_step=on_step)
    sizes = map(image_size, images)
    shown = model.config.explaining
    weights = shown.image_weight, shown.heatmap_weight
    found = zip(pixels, predictions, rows, sizes, strict=True)
    return [ExplainedPrediction(*parts, weights=weights) for parts in found]


def decoder_said(model: TrainedModel, preset: str | Preset) -> str:
    """Which decoder makes the heatmaps of a page, and how to have the run's own where that is another."""
    used, own = MDM(preset=preset).name, model.config.explaining.decoder
    if used.partition(",")[0] == own:
        return used
    return f"{used}, not {own} as this run's recipe says: for that add --preset {own}"


def explained_rows(
    model: TrainedModel,
    images: Sequence[Tensor],
    chosen: Sequence[Sequence[EvidenceItem]],
    *,
    preset: str | Preset = "fast",
    on_step: OnStep | None = None,
) -> list[tuple[ExplainedRow, ...]]:
    """For each image (3, H, W) uint8 the rows of the items chosen for it, of whatever class's evidence."""
    decoder = MDM(preset=preset)
    maps = SourceMaps(model, decoder, block=_PAIRS)
    numbers = list(dict.fromkeys(item.prototype for items in chosen for item in items))
    sources = maps.stored(numbers)
    lacking = [number for number in numbers if number not in sources]
    counter = StepCounter(len(lacking) + sum(map(len, chosen)))

    def observer(what: str, items: Sequence[int]) -> Callable[[Step], None]:
        def tell(done: int, total: int, step: Step) -> None:
            if on_step is not None:
                on_step(ExplainProgress(what, done, total, step))

        return counter.next(len(items), tell)

    sources |= maps.made(lacking, observer=partial(observer, "prototypes"))
    pairs = [(image, item) for image, items in zip(images, chosen, strict=True) for item in items]
    places = iter(places_in_images(model, decoder, pairs, observer=partial(observer, "images")))

    def row(item: EvidenceItem, mark: RowMark) -> ExplainedRow:
        return ExplainedRow(item, next(places), sources[item.prototype], maps.image(item.prototype), mark)

    marked = zip(chosen, row_marks(model, images, chosen), strict=True)
    return [tuple(row(*pair) for pair in zip(items, marks, strict=True)) for items, marks in marked]


def places_in_images(
    model: TrainedModel, decoder: MDM, pairs: Sequence[tuple[Tensor, EvidenceItem]], *, observer: Observer
) -> list[Explanation]:
    """Where each image (3, H, W) uint8 looks like the prototype that it is paired with."""
    found: list[Explanation] = []
    for block in _blocks(pairs, _PAIRS):
        node = row_node(
            model.prototyped,
            torch.tensor([item.region for _, item in block]),  # j of Eq. (12), as the decision found it
            names=[f"prototype {item.prototype} in the image" for _, item in block],
        )
        inputs = model.inputs([image for image, _ in block])
        watch = observer([item.prototype for _, item in block])
        found += decoder.explain(inputs, node, on_step=watch)
    return found


def _blocks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
