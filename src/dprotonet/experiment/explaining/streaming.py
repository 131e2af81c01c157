"""Explanations that can be watched as they grow, and stopped: what a page shows while the decoder runs.

For the prototypes that speak for a class, `grow_evidence` finds their places in the image and, where they are
not kept already, in their sources. `grow_class_map` shows where the class itself is seen, by any method.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.experiment.explaining.explain import ExplainedRow, places_in_images
from dprotonet.experiment.explaining.explainers import CONTRAST, class_node, contrast_explainer, explainer
from dprotonet.experiment.explaining.progress import StepCounter, Tell
from dprotonet.experiment.explaining.source_maps import SourceMaps
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.plain_model import PlainModel
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.interpretation.nodes import Node
from dprotonet.interpretation.outputs import Outputs


class GrowingMap(NamedTuple):
    """Maps (K, H, W) as they are now, of the image or of the sources of `prototypes`."""

    where: str  # "image" or "source"
    prototypes: tuple[int, ...]  # none: the map of a class
    raw: Tensor
    done: int
    total: int


Watch = Callable[[GrowingMap], None]


def twin(model: TrainedModel) -> TrainedModel:
    """The same model with a network of its own, for a thread of its own: explaining borrows the network."""
    if isinstance(model, PlainModel):
        return model.twin()
    copied = TrainedModel(
        copy.deepcopy(model.network), config=model.config, classes=model.classes, prototypes=model.prototypes
    )
    copied.folder, copied.part_names = model.folder, model.part_names
    return copied


@contextmanager
def interruptible(model: TrainedModel, check: Callable[[], None]) -> Iterator[None]:
    """Within, `check` is called before every pass through the network, and ends the work by raising."""

    def ask(_module: nn.Module, _inputs: object) -> None:
        check()

    handle = model.network.encoder.backbone.register_forward_pre_hook(ask)
    try:
        yield
    finally:
        handle.remove()


def grow_evidence(
    model: TrainedModel, image: Tensor, items: Sequence[EvidenceItem], *, preset: str | Preset, watch: Watch
) -> list[ExplainedRow]:
    """Where the image (3, S, S) uint8 looks like each of the prototypes, and where these lie at home."""
    decoder = MDM(preset=preset)
    maps = SourceMaps(model, decoder)
    numbers = tuple(dict.fromkeys(item.prototype for item in items))
    sources = maps.stored(numbers)
    lacking = tuple(number for number in numbers if number not in sources)
    counter = StepCounter(len(items) + len(lacking))

    def observer(where: str, prototypes: Sequence[int]) -> Callable[[Step], None]:
        return counter.next(len(prototypes), _growing(watch, where, tuple(prototypes)))

    if sources:
        finished = torch.stack([item.heatmap for item in sources.values()])
        watch(GrowingMap("source", tuple(sources), finished, 0, 1))
    pairs = [(image, item) for item in items]
    places = places_in_images(model, decoder, pairs, observer=partial(observer, "image"))
    sources |= maps.made(lacking, observer=partial(observer, "source"))
    return [
        ExplainedRow(item, place, sources[item.prototype], maps.image(item.prototype))
        for item, place in zip(items, places, strict=True)
    ]


def grow_class_map(
    model: TrainedModel,
    image: Tensor,
    label: int,
    *,
    versus: int | None = None,
    method: str,
    preset: str | Preset,
    watch: Watch,
) -> Explanation:
    """Where the class is seen in the image (3, S, S) uint8; only those that take steps show them.

    With `versus`, where the two are told apart; the method may then be `CONTRAST` too, that of our sheets.
    """
    classifier = Classifier.of_model(model)
    inputs = classifier.inputs([image])
    steps = StepCounter(1).next(1, _growing(watch, "image", ()))
    if versus is not None and method == CONTRAST:
        by = contrast_explainer(classifier, preset=preset)
    else:
        by = explainer(method, classifier, preset=preset)
    node: Node = class_node(classifier, [label], by)
    if versus is not None:
        node = ContrastNode(Outputs(classifier.module, classifier.task), [label], versus)
    (found,) = by.explain(inputs, node, on_step=steps)
    return found


def _growing(watch: Watch, where: str, prototypes: tuple[int, ...]) -> Tell:
    """Steps as the maps that they have come to."""
    return lambda done, total, step: watch(GrowingMap(where, prototypes, step.raw, done, total))
