"""Where any classifier looks: one heatmap per image, by any explainer of the table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explainers import class_node, explainer
from dprotonet.experiment.explaining.progress import StepCounter
from dprotonet.experiment.runs.familiarity import is_familiar, warning_of
from dprotonet.experiment.runs.look import look
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.image_like import ImageLike, image_size, name_of, picture, several
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.trained.versus import ClassName, check_different, check_versus, compared_with
from dprotonet.figures import saliency_sheet
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.explainers import explainer_entry
from dprotonet.interpretation.mdm import Preset
from dprotonet.interpretation.nodes import Node
from dprotonet.interpretation.outputs import Outputs, class_scores
from dprotonet.interpretation.task import Kind
from dprotonet.network import Network
from dprotonet.ops import upsample
from dprotonet.percent import percent

_BLOCK = 16  # images explained at a time: bounds the memory
_LONGEST = 640  # edge of a picture for people
_LIKELY = 3  # classes named with every image
_PRESENT = 0.5  # probability from which on a label counts as predicted, where an image may have several
TOP = 10  # of these are explained at most, unless more are asked for

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Saliency:
    """Why one image was given the class `label`, or might be; `picture` has the image's own proportions.

    A regression has no probabilities but a `value`, and its classes are `up` and `down`.
    """

    name: str
    picture: Tensor  # (3, H, W) uint8
    label: int
    class_name: str
    probability: float | None
    likely: tuple[tuple[str, float], ...]  # the likeliest classes
    explanation: Explanation  # at the size that the network wants
    image_size: tuple[int, int]  # height and width of the image itself
    distance: float | None = None  # from what the run knows; above 1 an image is not familiar
    versus: str | None = None  # the class that it is compared with, if it is
    task: Kind = "single"
    value: float | None = None  # of a regression
    replaced: bool = False  # it is the class to compare with itself, so the runner-up stands in for that
    left_out: int = 0  # further labels of the image that are predicted, but not explained

    @property
    def said(self) -> str:
        """The probability or the value, for people."""
        return f"{self.value:.4g}" if self.probability is None else percent(self.probability)

    @property
    def familiar(self) -> bool | None:
        """False: it is unlike the training images; None: the network cannot tell."""
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
    target: ClassName | Sequence[ClassName] | None = None,
    versus: ClassName | None = None,
    top: int = TOP,
    on_progress: Progress | None = None,
) -> list[Saliency]:
    """The heatmap of each image for the class `target`, by default the one that was predicted.

    Where an image may have several labels, those that are predicted are explained, the likeliest `top` of
    them and at least one; and `target` may be several classes. Each has an item of its own, an image's one
    after the other. With `versus`, a class or "runner-up", it shows what speaks for the class rather than for
    that one; a label that is `versus` itself is compared with its runner-up. The classifier is one that is
    opened, the model of a run, or the name of either.
    """
    if top < 1:
        raise UserError(f"top is {top}; at least one label has to be explained")
    explainer_entry(method)  # an unknown one is better found before the work
    known = Classifier.of(classifier)
    labels = _labels(known, target)
    if versus is not None:
        _check_versus(known, versus, labels)
    tell = on_progress or (lambda done, total: None)
    asked, found = several(images), []
    by, counter = explainer(method, known, preset=preset), StepCounter(len(asked))
    together = max(1, _BLOCK // (len(labels) or (top if known.task.kind == "multilabel" else 1)))
    for start in range(0, len(asked), together):
        block = asked[start : start + together]
        inputs = known.inputs(block)
        seen = _seen(known, inputs)
        pairs = [_Asked(row, label) for row in range(len(block)) for label in labels]
        pairs = pairs or [one for row in range(len(block)) for one in _predicted(known, seen, row, top)]
        if versus is not None:
            pairs = _with_others(known, versus, pairs, seen)
        watch = counter.next(len(block), lambda done, total, _: tell(done, total))
        explanations = by.explain(inputs[[one.row for one in pairs]], _node(known, pairs, by), on_step=watch)
        tell(*counter.finished)
        for one, explanation in zip(pairs, explanations, strict=True):
            found.append(_saliency(known, block[one.row], one, seen.of(one.row), explanation))
    return found


class _Asked(NamedTuple):
    """A class of an image of the block, and what it is compared with, if anything."""

    row: int
    label: int
    left_out: int = 0  # labels of the image that are predicted too, but more than are explained
    versus: int | None = None
    replaced: bool = False  # whether that is not the class that was asked for


def _with_others(
    classifier: Classifier, versus: ClassName, pairs: Sequence[_Asked], seen: "_Seen"
) -> list[_Asked]:
    rows, labels = [one.row for one in pairs], torch.tensor([one.label for one in pairs])
    found = compared_with(
        versus, labels, seen.watched[rows], classes=classifier.classes, owner=classifier.name
    )
    others = zip(pairs, found.versus.tolist(), found.replaced.tolist(), strict=True)
    return [one._replace(versus=other, replaced=replaced) for one, other, replaced in others]


def _node(classifier: Classifier, pairs: Sequence[_Asked], by: Explainer) -> Node:
    labels = torch.tensor([one.label for one in pairs])
    others = [one.versus for one in pairs if one.versus is not None]
    if not others:
        return class_node(classifier, labels, by)
    return ContrastNode(Outputs(classifier.module, classifier.task), labels, others)


def _labels(classifier: Classifier, target: str | int | Sequence[str | int] | None) -> list[int]:
    """The classes that were asked for; none if nothing was."""
    if target is None:
        return []
    asked = [target] if isinstance(target, str | int) else list(target)
    if not asked:
        raise UserError("the list of targets is empty; leave it out for the predicted class")
    return list(dict.fromkeys(classifier.label(name) for name in asked))


def _predicted(classifier: Classifier, seen: "_Seen", row: int, top: int) -> list[_Asked]:
    """Of the image `row`: the likeliest class, or up to `top` labels that it likely has; `up` of a value."""
    if classifier.task.kind == "regression":
        return [_Asked(row, 0)]
    own = seen.watched[row]
    present = int((own >= _PRESENT).sum()) if classifier.task.kind == "multilabel" else 1
    labels = sorted(own.argsort(descending=True, stable=True)[: min(max(present, 1), top)].tolist())
    return [_Asked(row, label, max(present - top, 0)) for label in labels]


def saliency_picture(found: Sequence[Saliency]) -> Image.Image:
    """All images on one sheet, each beside its heatmap."""
    return saliency_sheet(
        [item.picture for item in found],
        [item.heatmap for item in found],
        titles=[_short(item.class_name) for item in found],
        captions=[_caption(item) for item in found],
        notices=[warning_of(item.distance) for item in found],
    )


def _check_versus(classifier: Classifier, versus: ClassName, labels: Sequence[int]) -> None:
    if classifier.task.kind == "regression":
        raise UserError("a regression has no classes to compare; explain its value up or down")
    check_versus(versus, classifier.classes, owner=classifier.name)
    check_different(labels, versus, classifier.classes, owner=classifier.name)


class _Seen(NamedTuple):
    watched: Tensor  # (B, C) in float64: probabilities, or the value up and down
    distances: Sequence[float | None]  # from what the run knows, where it can tell

    def of(self, row: int) -> tuple[Tensor, float | None]:
        return self.watched[row], self.distances[row]


@torch.no_grad()
def _seen(classifier: Classifier, inputs: Tensor) -> _Seen:
    """One look at a batch, by the network as it predicts, whatever mode its owner left it in."""
    known, module = classifier.familiarity, classifier.module
    with borrowed(module):
        if known is None or not isinstance(module, Network):
            return _Seen(classifier.watched(class_scores(module, inputs)), [None] * len(inputs))
        found = look(module, inputs, known)
    assert found.distance is not None
    return _Seen(classifier.watched(found.logits), found.distance.tolist())


def _saliency(
    classifier: Classifier,
    image: ImageLike,
    asked: _Asked,
    seen: tuple[Tensor, float | None],
    explanation: Explanation,
) -> Saliency:
    watched, distance = seen
    label = asked.label
    is_value = classifier.task.kind == "regression"
    order = [] if is_value else watched.argsort(descending=True)[:_LIKELY].tolist()
    return Saliency(
        name=name_of(image),
        picture=picture(image, longest=_LONGEST),
        label=label,
        class_name=classifier.classes[label],
        probability=None if is_value else float(watched[label]),
        likely=tuple((classifier.classes[index], float(watched[index])) for index in order),
        explanation=explanation,
        image_size=image_size(image),
        distance=distance,
        versus=None if asked.versus is None else classifier.classes[asked.versus],
        task=classifier.task.kind,
        value=float(watched[0]) if is_value else None,
        replaced=asked.replaced,
        left_out=asked.left_out,
    )


def _caption(item: Saliency) -> str:
    file = Path(item.name).name
    if item.probability is None:
        lines = [f"what moves the value {item.class_name}", f"value: {item.said}", file]
    elif item.task == "multilabel":
        lines = [f"{'predicted with' if item.probability >= _PRESENT else 'given'} {item.said}", file]
    elif (likeliest := item.likely[0])[0] == item.class_name:
        lines = [f"predicted with {item.said}", file]
    else:
        name, sure = likeliest
        lines = [f"asked for, given {item.said}", f"predicted: {_short(name)} ({percent(sure)})", file]
    if item.versus is not None:
        lines.append(f"what speaks for it rather than for {_short(item.versus)}")
    return "\n".join(line for line in lines if line)


def _short(class_name: str) -> str:
    """The first of the names that ImageNet has for a class."""
    return class_name.split(",")[0]
