"""The rivals, by pytorch-grad-cam: Grad-CAM, Grad-CAM++, Score-CAM, Ablation-CAM.

Their layer need not be named: the deepest one that still has places is found while the network runs, and a
transformer's tokens are laid out as a map. The package is an extra, `pip install dprotonet[cam]`.
"""

from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation, Passes, borrowed
from dprotonet.interpretation.layout import Layout
from dprotonet.interpretation.nodes import ClassNode, Node
from dprotonet.interpretation.prior import deepest
from dprotonet.interpretation.problem import Problem
from dprotonet.ops import unit_range

METHODS = {
    "gradcam": "GradCAM",
    "gradcam++": "GradCAMPlusPlus",
    "scorecam": "ScoreCAM",
    "ablationcam": "AblationCAM",
}


class CAM:
    """Explains the class of a network by one of the four; `layer` None finds the deepest feature map."""

    def __init__(
        self, model: nn.Module, method: str = "gradcam", *, layer: nn.Module | None = None, batch: int = 32
    ) -> None:
        if method not in METHODS:
            raise UserError(f"unknown method '{method}'; known: {', '.join(METHODS)}")
        self.model, self.method, self.layer, self.batch = model, method, layer, batch

    def explain(self, images: Tensor, node: Node | None = None) -> list[Explanation]:
        with borrowed(self.model):
            labels = self._labels(images, node)
            module, layout = self._target_layer(images, labels)
            maps, forward = self._maps(images, labels, module, layout)
        heat = unit_range(maps)
        return [
            Explanation(
                heatmap=heat[row],
                raw=maps[row],
                masks={},
                loss=(),
                passes=Passes(forward, int(self.method.startswith("gradcam"))),
                node=f"logit of class {int(labels[row])}",
                image=images[row],
                facts={"preset": self.method},
            )
            for row in range(len(images))
        ]

    def _labels(self, images: Tensor, node: Node | None) -> Tensor:
        node = node if node is not None else ClassNode.predicted(self.model, images, batch=self.batch)
        if not isinstance(node, ClassNode):
            raise UserError(f"{self.method} explains classes only; use MDM for other nodes")
        node.check(len(images))
        return node.labels

    def _target_layer(self, images: Tensor, labels: Tensor) -> tuple[nn.Module, Layout | None]:
        if self.layer is not None:
            return self.layer, None
        node = ClassNode(self.model, labels[:1], probability=False)
        problem = Problem(images[:1], node, batch=1)
        found = deepest(problem, problem.images, problem.rows)
        if found is None:
            raise UserError(f"{self.method} needs a layer with places and this model has none; use MDM")
        return found.module, found.layout

    def _maps(
        self, images: Tensor, labels: Tensor, module: nn.Module, layout: Layout | None
    ) -> tuple[Tensor, int]:
        """Maps (N, H, W) and the forward passes an image."""
        kind = getattr(_package(), METHODS[self.method])
        reshape = None if layout is None or layout.kind == "first" else layout.channels_first
        counted = _Counted()
        handle = self.model.register_forward_pre_hook(counted)
        try:
            with kind(model=self.model, target_layers=[module], reshape_transform=reshape) as cam:
                cam.batch_size = self.batch
                maps = [_one(cam, images[row : row + 1], int(labels[row])) for row in range(len(images))]
        finally:
            handle.remove()
        return torch.from_numpy(np.concatenate(maps)).to(images.device), round(counted.images / len(images))


class _Counted:
    """Counts the images that go through."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, _module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.images += len(inputs[0])


def _one(cam: Any, image: Tensor, label: int) -> np.ndarray:
    # The parameters are borrowed without gradients, so the image has to carry the graph.
    leaf = image.detach().clone().requires_grad_(True)
    maps: np.ndarray = cam(input_tensor=leaf, targets=[lambda output: output[..., label]])
    return maps


def _package() -> ModuleType:
    try:
        return import_guarded("pytorch_grad_cam")
    except ModuleNotFoundError:
        raise UserError("this method needs the package grad-cam: pip install 'dprotonet[cam]'") from None
