"""Where any classifier looks: one heatmap per image, by any explainer of the table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from dprotonet.experiment.explaining.explainers import explainer
from dprotonet.experiment.explaining.progress import StepCounter
from dprotonet.experiment.runs.calibration import shares_of
from dprotonet.experiment.runs.familiarity import is_familiar, warning_of
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.image_like import ImageLike, image_size, name_of, picture, several
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.trained.versus import ClassName, check_versus, compared_with
from dprotonet.figures import saliency_sheet
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainers import explainer_entry
from dprotonet.interpretation.mdm import Preset
from dprotonet.interpretation.nodes import class_scores
from dprotonet.network import DProtoNet
from dprotonet.ops import upsample
from dprotonet.percent import percent

_BLOCK = 16  # images explained at a time: bounds the memory
_LONGEST = 640  # edge of a picture for people
_LIKELY = 3  # classes named with every image

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Saliency:
    """Why one image was given the class `label`, or might be; `picture` has the image's own proportions."""

    name: str
    picture: Tensor  # (3, H, W) uint8
    label: int
    class_name: str
    probability: float
    likely: tuple[tuple[str, float], ...]  # the likeliest classes
    explanation: Explanation  # at the size that the network wants
    image_size: tuple[int, int]  # height and width of the image itself
    distance: float | None = None  # from what the run knows; above 1 an image is not familiar
    versus: str | None = None  # the class that it is compared with, if it is

    @property
    def familiar(self) -> bool | None:
        """False: nothing here looks like what the run knows; None: the network cannot tell."""
        return is_familiar(self.distance)

    @property
    def heatmap(self) -> Tensor:
        """The heatmap at the size of the picture, (H, W) in [0, 1]."""
        height, width = self.picture.shape[-2:]
        return upsample(self.explanation.heatmap.cpu(), (height, width)).clamp(0, 1)


def saliency(
    classifier: Classifier | TrainedModel | str | PathLike[str],
    images: ImageLike | Sequence[ImageLike],
    *,
    method: str = "mdm",
    preset: str | Preset = "fast",
    target: ClassName | None = None,
    versus: ClassName | None = None,
    on_progress: Progress | None = None,
) -> list[Saliency]:
    """The heatmap of each image for the class `target`, by default the one that was predicted.

    With `versus`, a class or "runner-up", it shows what speaks for the class rather than for that one. The
    classifier is one that is opened, the model of a run, or the name of either.
    """
    explainer_entry(method)  # an unknown one is better found before the work
    known = Classifier.of(classifier)
    label = None if target is None else known.label(target)
    if versus is not None:
        check_versus(versus, known.classes, owner=known.name)
    tell = on_progress or (lambda done, total: None)
    asked, found = several(images), []
    counter = StepCounter(len(asked))
    for start in range(0, len(asked), _BLOCK):
        block = asked[start : start + _BLOCK]
        inputs = known.inputs(block)
        probabilities, distances = _seen(known, inputs)
        labels = probabilities.argmax(dim=1) if label is None else torch.full((len(block),), label)
        watch = counter.next(len(block), lambda done, total, _: tell(done, total))
        by = explainer(method, known, preset=preset)
        others = None if versus is None else _others(known, versus, labels, probabilities)
        asked_for = labels if others is None else ContrastNode(known.module, labels, others)
        explanations = by.explain(inputs, asked_for, on_step=watch)
        tell(*counter.finished)
        beside = [None] * len(block) if others is None else [known.classes[one] for one in others.tolist()]
        rows = zip(block, labels.tolist(), probabilities, explanations, distances, beside, strict=True)
        found += [_saliency(known, *row) for row in rows]
    return found


def saliency_picture(found: Sequence[Saliency]) -> Image.Image:
    """All images on one sheet, each beside its heatmap."""
    return saliency_sheet(
        [item.picture for item in found],
        [item.heatmap for item in found],
        titles=[_short(item.class_name) for item in found],
        captions=[_caption(item) for item in found],
        notices=[warning_of(item.distance) for item in found],
    )


def _others(classifier: Classifier, versus: ClassName, labels: Tensor, probabilities: Tensor) -> Tensor:
    """What each class is compared with, (B,)."""
    return compared_with(versus, labels, probabilities, classes=classifier.classes, owner=classifier.name)


class _Seen(NamedTuple):
    probabilities: Tensor  # (B, C) in float64
    distances: Sequence[float | None]  # from what the run knows, where it can tell


@torch.no_grad()
def _seen(classifier: Classifier, inputs: Tensor) -> _Seen:
    """One look at a batch, by the network as it predicts, whatever mode its owner left it in."""
    known, module = classifier.familiarity, classifier.module
    with borrowed(module):
        if known is None or not isinstance(module, DProtoNet):
            return _Seen(_shares(classifier, class_scores(module, inputs)), [None] * len(inputs))
        found = module.evidence(inputs)
    return _Seen(_shares(classifier, found.logits), known.distance(found.distances).tolist())


def _shares(classifier: Classifier, logits: Tensor) -> Tensor:
    return shares_of(logits.double(), classifier.calibration).cpu()


def _saliency(
    classifier: Classifier,
    image: ImageLike,
    label: int,
    probabilities: Tensor,
    explanation: Explanation,
    distance: float | None,
    versus: str | None,
) -> Saliency:
    order = probabilities.argsort(descending=True)[:_LIKELY].tolist()
    return Saliency(
        name=name_of(image),
        picture=picture(image, longest=_LONGEST),
        label=label,
        class_name=classifier.classes[label],
        probability=float(probabilities[label]),
        likely=tuple((classifier.classes[index], float(probabilities[index])) for index in order),
        explanation=explanation,
        image_size=image_size(image),
        distance=distance,
        versus=versus,
    )


def _caption(item: Saliency) -> str:
    (likeliest, sure), *_ = item.likely
    lines = [f"predicted with {percent(item.probability)}", Path(item.name).name]
    if item.versus is not None:
        lines.append(f"what speaks for it rather than for {_short(item.versus)}")
    if likeliest != item.class_name:
        lines[0] = f"asked for, given {percent(item.probability)}"
        lines.insert(1, f"predicted: {_short(likeliest)} ({percent(sure)})")
    return "\n".join(line for line in lines if line)


def _short(class_name: str) -> str:
    """The first of the names that ImageNet has for a class."""
    return class_name.split(",")[0]
