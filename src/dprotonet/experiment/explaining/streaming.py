"""Explanations that can be watched as they grow, and stopped: what a page shows while the decoder runs.

For the prototypes that speak for a class, `grow_evidence` finds their places in the image and, where they are
not kept already, in their sources. `grow_class_map` shows where the class itself is seen, by any method.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.experiment.explaining.explain import ExplainedRow
from dprotonet.experiment.explaining.explainers import rival, row_node, watches_probability
from dprotonet.experiment.explaining.saliency import METHODS
from dprotonet.experiment.explaining.source_maps import SourceMaps
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.cam import METHODS as CAMS
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.network import BlackBox


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
    copied = TrainedModel(
        copy.deepcopy(model.network), config=model.config, classes=model.classes, prototypes=model.prototypes
    )
    copied.folder, copied.part_names = model.folder, model.part_names
    return copied


def available_methods(model: TrainedModel) -> tuple[str, ...]:
    """The methods for maps of classes that work here with this network, `mdm` first."""
    lacking = set() if find_spec("pytorch_grad_cam") else set(CAMS)
    if isinstance(model.network, BlackBox):
        lacking.add("similarity")
    return tuple(name for name in METHODS if name not in lacking)


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
    meter = _Meter(len(items) + len(lacking), watch)
    if sources:
        meter.show("source", tuple(sources), torch.stack([item.heatmap for item in sources.values()]))
    places = _places(model, decoder, image, items, meter)
    sources |= maps.made(lacking, observer=lambda count: meter.observer("source", lacking, count))
    return [
        ExplainedRow(item, place, sources[item.prototype], maps.image(item.prototype))
        for item, place in zip(items, places, strict=True)
    ]


def _places(
    model: TrainedModel, decoder: MDM, image: Tensor, items: Sequence[EvidenceItem], meter: "_Meter"
) -> list[Explanation]:
    node = row_node(
        model.prototyped,
        torch.tensor([item.region for item in items]),  # j of Eq. (12), as the decision found it
        names=[f"prototype {item.prototype} in the image" for item in items],
    )
    numbers = tuple(item.prototype for item in items)
    inputs = model.inputs([image] * len(items))
    return decoder.explain(inputs, node, on_step=meter.observer("image", numbers, len(items)))


def grow_class_map(
    model: TrainedModel, image: Tensor, label: int, *, method: str, preset: str | Preset, watch: Watch
) -> Explanation:
    """Where the class is seen in the image (3, S, S) uint8; only the decoder shows steps."""
    classifier = Classifier.of_model(model)
    inputs = classifier.inputs([image])
    if method != "mdm":
        node = ClassNode(classifier.module, [label], probability=watches_probability(method))
        (found,) = rival(method, classifier).explain(inputs, node)
        return found
    decoder = MDM(classifier.module, preset=preset)
    node = ClassNode(classifier.module, [label], probability=decoder.preset.probability)
    (found,) = decoder.explain(inputs, node, on_step=_Meter(1, watch).observer("image", (), 1))
    return found


class _Meter:
    """Counts steps over several calls of the decoder."""

    def __init__(self, maps: int, watch: Watch) -> None:
        self.maps, self.watch, self.begun = maps, watch, 0

    def show(self, where: str, prototypes: tuple[int, ...], maps: Tensor) -> None:
        """Maps that are finished already."""
        self.watch(GrowingMap(where, prototypes, maps, 0, 1))

    def observer(self, where: str, prototypes: tuple[int, ...], count: int) -> Callable[[Step], None]:
        """Who watches the next `count` maps."""
        before = self.begun
        self.begun += count

        def step(now: Step) -> None:
            done = before * now.total + count * now.number
            self.watch(GrowingMap(where, prototypes, now.raw, done, self.maps * now.total))

        return step
