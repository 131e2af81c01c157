"""The rivals, by pytorch-grad-cam: Grad-CAM and its kin, Score-CAM, Ablation-CAM.

Their layer need not be named: the deepest one that still has places is found while the network runs, and a
transformer's tokens are laid out as a map. The package is an extra, `pip install dprotonet[cam]`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation, Passes
from dprotonet.interpretation.borrowed import borrowed, differentiable
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Explainer, Question, maps_explained, unit_range_of_most
from dprotonet.interpretation.first_guess import deepest
from dprotonet.interpretation.layout import Layout
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.nodes import CallableNode, ClassNode, Node, TargetNode, precision
from dprotonet.interpretation.outputs import GivenTask, class_scores
from dprotonet.interpretation.returned import OutputName, Reader

CAM_CLASSES = {  # what the package calls them
    "gradcam": "GradCAM",
    "gradcam++": "GradCAMPlusPlus",
    "scorecam": "ScoreCAM",
    "ablationcam": "AblationCAM",
    "layercam": "LayerCAM",
    "hirescam": "HiResCAM",
    "xgradcam": "XGradCAM",
    "eigencam": "EigenCAM",
    "fullgrad": "FullGrad",
}
_OF_ALL_LAYERS = ("fullgrad",)  # which finds its layers itself: all that have biases
_WITHOUT_GRADIENT = ("scorecam", "ablationcam", "eigencam")


Watched = ClassNode | ContrastNode | TargetNode
Target = Callable[[Tensor], Tensor]  # the scores (C,) of an image to a number ()

_NEAR_ZERO = 1e-3  # a score of the whole image below which nothing can be divided by it


class CAM(Explainer):
    """Explains the class of a network by one of these; `layer` None finds the deepest feature map.

    `stem` is a module of the network in front of that layer. Ablation-CAM shows it one image hundreds of
    times; named, it computes that image once. What follows still runs every time, and every run counts as a
    forward pass: passes say how often the network was asked. The one image by which the layer is found is
    not counted.
    """

    def __init__(
        self,
        model: nn.Module,
        method: str = "gradcam",
        *,
        layer: nn.Module | None = None,
        stem: nn.Module | None = None,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        if method not in CAM_CLASSES:
            raise UserError(f"unknown method '{method}'; known: {', '.join(CAM_CLASSES)}")
        if not isinstance(model, nn.Module):
            raise UserError(
                f"{method} needs a module, whose layers it can watch, and {type(model).__name__} is none; "
                "MDM and Rise explain functions too"
            )
        self.method, self.layer = method, layer
        super().__init__(model, classes=classes, task=task, output=output, batch=internal_batch_size)
        self.network, self.stem = model, stem if method == "ablationcam" else None

    @property
    def title(self) -> str:
        return self.method

    def explained(self, question: Question) -> list[Explanation]:
        if precision(self.network) not in (torch.float32, torch.float64):
            raise UserError(f"{self.method} needs a model in float32, not {precision(self.network)}")
        node = self._watched(question.node)
        with borrowed(self.network), _unaltered(self.network), differentiable():
            module, layout = self._target_layer(question.images, node)
            with _computed_once(self._stem_before(module)):
                maps, forward = self._maps(question, node, module, layout)
        passes = Passes(forward + question.before, int(self.method not in _WITHOUT_GRADIENT))
        asked = replace(question, node=node)
        heatmaps = unit_range_of_most(maps, 0.01 if self.method in _OF_ALL_LAYERS else 0.0)
        return maps_explained(asked, maps, passes=passes, facts={"preset": self.method}, heatmaps=heatmaps)

    def _watched(self, node: Node) -> Watched:
        """A class at its logit, whatever its node watches; two of them; or what a target makes of them."""
        if isinstance(node, ClassNode):
            return ClassNode(
                node.outputs, node.labels, probability=False, numbered_as_outputs=node.numbered_as_outputs
            )
        if not isinstance(node, TargetNode | ContrastNode):
            raise UserError(
                f"{self.method} explains classes only; use MDM for other nodes, or give targets of the output"
            )
        return node

    def _target_layer(self, images: Tensor, node: Watched) -> tuple[nn.Module, Layout | None]:
        if self.layer is not None:
            return self.layer, None

        def watched(seen: Tensor) -> Tensor:
            return node(seen, torch.zeros(len(seen), dtype=torch.long, device=seen.device)).squeeze(1)

        task = MaskingTask(images[:1], CallableNode(watched, model=self.network), batch=1)
        # CAMs take what is large for what is there, so a map after a ReLU suits them, where there is one.
        (found,) = deepest(task, task.images, task.rows, rectified=True, features=True)
        if found is None:
            (found,) = deepest(task, task.images, task.rows, features=True)
        if found is None:
            raise UserError(f"{self.method} needs a layer with places and this model has none; use MDM")
        return found.module, found.layout

    def _stem_before(self, layer: nn.Module) -> nn.Module | None:
        """A stem that holds the layer itself has to run every time."""
        holds = self.stem is not None and any(module is layer for module in self.stem.modules())
        return None if holds else self.stem

    def _maps(
        self,
        question: Question,
        node: Watched,
        module: nn.Module,
        layout: Layout | None,
    ) -> tuple[Tensor, int]:
        """Maps (N, H, W) and the forward passes per image."""
        package = _package()
        turned = layout is not None and layout.kind != "first"
        classifier = _Classifier(self.network, None if isinstance(node, TargetNode) else node.outputs.scores)
        cam = _silent(CAM_CLASSES[self.method])(
            model=classifier,
            target_layers=[] if self.method in _OF_ALL_LAYERS else [module],
            reshape_transform=layout.channels_first if layout is not None and turned else None,
        )
        cam.batch_size = question.batch
        if self.method == "ablationcam":  # whose default is one layer shared by all, with the last map in it
            layers = package.ablation_layer
            cam.ablation_layer = layers.AblationLayerVit() if turned else layers.AblationLayer()
        images = question.images.to(precision(self.network))
        targets = [_target(node, row) for row in range(len(images))]
        if self.method == "ablationcam":
            targets = [_FromAbove(target) for target in targets]
        maps = []
        for row, target in enumerate(targets):
            maps.append(_one(cam, images[row : row + 1], target))
            if self.method == "eigencam" and classifier.last is not None:
                target(classifier.last)  # which the method itself never asks: is there such a class?
        return torch.from_numpy(np.concatenate(maps)).to(images.device), round(classifier.seen / len(images))


class _Classifier(nn.Module):
    """The model as grad-cam wants it, images to numbers (B, C); counts the images that go through.

    They are the scores of classes, or, where targets look at outputs, the outputs.
    """

    def __init__(self, model: nn.Module, scores: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.model, self.scores, self.seen, self.read = model, scores, 0, Reader()
        self.last: Tensor | None = None  # the scores of the last image

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        scores = class_scores(self.model, images, self.read) if self.scores is None else self.scores(images)
        self.last = scores.detach()[-1]
        return scores


class _Once:
    """In the place of a module's forward: an image that comes again, alone or as a whole batch, is kept."""

    def __init__(self, forward: Callable[[Tensor], Tensor]) -> None:
        self.forward = forward
        self.image, self.answer = torch.empty(0), torch.empty(0)

    def __call__(self, images: Tensor) -> Tensor:
        image = images[:1]
        if not torch.equal(image.expand_as(images), images):
            return self.forward(images)
        if not torch.equal(self.image, image):
            self.image, self.answer = image.clone(), self.forward(image)
        return self.answer.expand(len(images), *self.answer.shape[1:])


@contextmanager
def _computed_once(module: nn.Module | None) -> Iterator[None]:
    if module is None:
        yield
        return
    own = vars(module).get("forward")
    vars(module)["forward"] = _Once(module.forward)
    try:
        yield
    finally:
        del vars(module)["forward"]  # the class has it, unless the module had one of its own
        if own is not None:
            vars(module)["forward"] = own


@contextmanager
def _unaltered(model: nn.Module) -> Iterator[None]:
    """Layers and hooks come back as they were; Ablation-CAM swaps a layer and, if stopped, leaves it so."""
    before = [(module, dict(module._modules), set(module._forward_hooks)) for module in model.modules()]
    try:
        yield
    finally:
        for module, layers, hooks in before:
            module._modules.update(layers)
            for key in set(module._forward_hooks) - hooks:
                del module._forward_hooks[key]


class _NoBar:
    """In the place of tqdm, the module or the function: things are gone through, and nothing is shown."""

    def __call__(self, things: Any, *_arguments: Any, **_settings: Any) -> Any:
        return things

    tqdm = __call__


@cache
def _silent(name: str) -> Any:
    """One of the package's classes without its progress bars.

    A subclass of our own: nothing is changed in the package, which others may be using in another thread.
    """
    loud = getattr(_package(), name)
    return type(name, (loud,), {"get_cam_weights": _without_bars(loud.get_cam_weights)})


def _without_bars(function: FunctionType) -> Callable[..., Any]:
    """The same code among the same globals, but for tqdm."""
    return FunctionType(
        function.__code__,
        {**function.__globals__, "tqdm": _NoBar()},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


class _FromAbove:
    """A target for Ablation-CAM, which divides by the score of the whole image, the first that it asks for.

    One near zero, or below, would blow the map up or turn it round: then scores are shifted, to 1 there.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._shift: Tensor | None = None

    def __call__(self, scores: Tensor) -> Tensor:
        score = self.target(scores)
        if self._shift is None:
            self._shift = torch.where(score < _NEAR_ZERO, 1 - score, 0.0).detach()
        return score + self._shift


def _target(node: Watched, row: int) -> Callable[[Tensor], Tensor]:
    """What grad-cam should watch of an output row for one image."""
    if isinstance(node, TargetNode):
        return lambda scores: node.value(row, scores)
    if isinstance(node, ContrastNode):
        return lambda scores: node.of_scores(row, scores)
    label = int(node.labels[row])

    def logit(scores: Tensor) -> Tensor:
        if not 0 <= label < len(scores):
            raise UserError(f"there is no class {label}; the model has classes 0 to {len(scores) - 1}")
        return scores[label]

    return logit


def _one(cam: Any, image: Tensor, target: Target) -> np.ndarray:
    # The parameters are borrowed without gradients, so the image has to carry the graph.
    leaf = image.detach().clone().requires_grad_(True)
    maps: np.ndarray = cam(input_tensor=leaf, targets=[target])
    return maps


def _package() -> ModuleType:
    try:
        return import_guarded("pytorch_grad_cam")
    except ModuleNotFoundError:
        raise UserError("this method needs the package grad-cam: pip install 'dprotonet[cam]'") from None
