"""What networks that explain themselves by maps of their prototypes have in common: one pass, no masking.

Which prototypes count for a node, and how much, and how finished maps become explanations. How a network
makes the map of a prototype is left to `similarity` and `occurrence`.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from dprotonet.errors import ComputationError, UserError
from dprotonet.interpretation.base import Explanation, Passes
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Explainer, Question, maps_explained
from dprotonet.interpretation.masking_task import check_images
from dprotonet.interpretation.nodes import ClassNode, Node, PrototypeNode
from dprotonet.interpretation.task import Task
from dprotonet.ops import unit_range


class PrototypeMaps(Explainer):
    """Explains classes and prototypes by one forward pass; `weight` (C, P) is the last layer.

    Of two classes compared the map is the difference, above zero where the first is ahead; the rest is cold.
    """

    name: str  # in the facts of an explanation

    def __init__(
        self, model: nn.Module, *, weight: Tensor, classes: Sequence[str] = (), internal_batch_size: int = 32
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UserError(
                f"{self.name} maps need a prototype network, a module, and {type(model).__name__} is none; "
                "MDM and Rise explain functions too"
            )
        super().__init__(model, classes=classes, batch=internal_batch_size)
        self.weight = weight.detach().float()

    @property
    def network(self) -> nn.Module:
        assert isinstance(self.model, nn.Module)
        return self.model

    def explained(self, question: Question) -> list[Explanation]:
        """Of a ClassNode, a ContrastNode or a PrototypeNode."""
        with borrowed(self.network), torch.inference_mode(False), torch.no_grad():
            raw = torch.cat(list(self._blocks(question)))
        _check_finite(raw, question.node)
        passes = Passes(1 + question.before, 0)
        heat = unit_range(raw.relu()) if isinstance(question.node, ContrastNode) else None
        return maps_explained(question, raw, passes=passes, facts={"preset": self.name}, heatmaps=heat)

    def of_prototypes(self, images: Tensor, numbers: Sequence[int]) -> Tensor:
        """Heatmaps (M, H, W) of prototypes by number, one per image (M, C, H, W); or all of a single image,
        which then takes one pass."""
        check_images(images, self.batch)
        if len(images) not in (1, len(numbers)):
            raise UserError(
                f"{len(numbers)} prototypes for {len(images)} images; give one each, or one image"
            )
        chosen, maps = torch.as_tensor(numbers, dtype=torch.long), list[Tensor]()
        with borrowed(self.network), torch.inference_mode(False), torch.no_grad():
            for start in range(0, len(images), self.batch):
                some = chosen if len(images) == 1 else chosen[start : start + self.batch]
                maps.append(self._own_maps(images[start : start + self.batch].detach(), some))
        return unit_range(torch.cat(maps))

    def _blocks(self, question: Question) -> Iterator[Tensor]:
        """Raw maps, (b, H, W) for some images at a time."""
        weights = _prototype_weights(question.node, self.weight)
        return self._maps(question.images.detach(), weights, question.batch)

    @abstractmethod
    def _own_maps(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Enlarged maps (M, H, W) of prototypes (M,) on as many images, or on one."""

    @abstractmethod
    def _maps(self, images: Tensor, weights: Tensor, batch: int) -> Iterator[Tensor]:
        """Enlarged maps, (b, H, W) for `batch` images at a time; weights (N, P) of the prototypes' maps."""


def _prototype_weights(node: Node, weight: Tensor) -> Tensor:
    """How much each prototype's map counts for each image, (N, P); weight (C, P)."""
    if isinstance(node, PrototypeNode):
        return torch.eye(weight.shape[1], device=weight.device)[node.numbers]
    if isinstance(node, ContrastNode):
        return _of_classes(node.labels, weight) - _of_classes(node.versus, weight)
    if not isinstance(node, ClassNode):
        raise UserError("similarity maps explain classes and prototypes only; use MDM for other nodes")
    return _of_classes(node.labels, weight).clamp_min(0)


def check_pair(node: ContrastNode, weight: Tensor) -> None:
    """An error for a class that weights (C, P) have no row of."""
    _of_classes(torch.cat([node.labels, node.versus]), weight)


def _of_classes(labels: Tensor, weight: Tensor) -> Tensor:
    """The weights (N, P) of classes (N,); a single row of weights is that of class 1 of two."""
    weight = Task("binary" if len(weight) == 1 else "single").columns(weight.T).T
    for label in labels.tolist():
        if not 0 <= label < len(weight):
            raise UserError(f"there is no class {label}; the model has classes 0 to {len(weight) - 1}")
    return weight[labels.to(weight.device)]


def _check_finite(raw: Tensor, node: Node) -> None:
    wrong = (~torch.isfinite(raw.flatten(1)).all(dim=1)).nonzero().flatten().tolist()
    if wrong:
        raise ComputationError(
            f"the similarity map of {node.name(wrong[0])} is not finite for image {wrong[0]}; "
            "check its region vectors, or use float32 if the model is in half precision"
        )
