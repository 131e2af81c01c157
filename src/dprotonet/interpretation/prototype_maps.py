"""What networks that explain themselves by maps of their prototypes have in common: one pass, no masking.

Which prototypes count for a node, and how much, and how finished maps become explanations. How a network
makes the map of a prototype is left to `similarity` and `occurrence`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from dprotonet.errors import ComputationError, UserError
from dprotonet.interpretation.base import Explanation, Passes, warn_of_empty
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.masking_task import check_images
from dprotonet.interpretation.nodes import ClassNode, Node, PrototypeNode
from dprotonet.ops import unit_range


class PrototypeMaps(ABC):
    """Explains classes and prototypes by one forward pass; `weight` (C, P) is the last layer."""

    name: str  # in the facts of an explanation

    def __init__(self, model: nn.Module, *, weight: Tensor, batch: int) -> None:
        self.model, self.batch = model, batch
        self.weight = weight.detach().float()

    def explain(self, images: Tensor, node: Node | None = None) -> list[Explanation]:
        """One explanation an image: of a ClassNode, of a PrototypeNode, or of the predicted class."""
        check_images(images, self.batch)
        watched = node if node is not None else self._predicted(images)
        watched.check(len(images))
        weights = _prototype_weights(watched, self.weight)
        with borrowed(self.model), torch.inference_mode(False), torch.no_grad():
            raw = torch.cat(list(self._maps(images.detach(), weights)))
        return _explanations(images, raw, watched, name=self.name, passes=1 + (node is None))

    def of_prototypes(self, images: Tensor, numbers: Sequence[int]) -> Tensor:
        """Heatmaps (M, H, W) of prototypes by number, one an image (M, C, H, W); or all of a single image,
        which then takes one pass."""
        check_images(images, self.batch)
        if len(images) not in (1, len(numbers)):
            raise UserError(
                f"{len(numbers)} prototypes for {len(images)} images; give one each, or one image"
            )
        chosen, maps = torch.as_tensor(numbers, dtype=torch.long), list[Tensor]()
        with borrowed(self.model), torch.inference_mode(False), torch.no_grad():
            for start in range(0, len(images), self.batch):
                some = chosen if len(images) == 1 else chosen[start : start + self.batch]
                maps.append(self._own_maps(images[start : start + self.batch].detach(), some))
        return unit_range(torch.cat(maps))

    def _predicted(self, images: Tensor) -> ClassNode:
        labels = ClassNode.predicted(self.model, images, batch=self.batch).labels
        return ClassNode(self.model, labels, probability=False)

    @abstractmethod
    def _own_maps(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Enlarged maps (M, H, W) of prototypes (M,) on as many images, or on one."""

    @abstractmethod
    def _maps(self, images: Tensor, weights: Tensor) -> Iterator[Tensor]:
        """Enlarged maps, (b, H, W) for every block of images; weights (N, P) of the prototypes' maps."""


def _prototype_weights(node: Node, weight: Tensor) -> Tensor:
    """How much each prototype's map counts for each image, (N, P); weight (C, P)."""
    if isinstance(node, PrototypeNode):
        return torch.eye(weight.shape[1], device=weight.device)[node.numbers]
    if not isinstance(node, ClassNode):
        raise UserError("similarity maps explain classes and prototypes only; use MDM for other nodes")
    for label in node.labels.tolist():
        if not 0 <= label < len(weight):
            raise UserError(f"there is no class {label}; the model has classes 0 to {len(weight) - 1}")
    return weight[node.labels.to(weight.device)].clamp_min(0)


def _explanations(images: Tensor, raw: Tensor, node: Node, *, name: str, passes: int) -> list[Explanation]:
    """Finished maps (N, H, W) as explanations."""
    _check_finite(raw, node)
    heatmaps = unit_range(raw)
    warn_of_empty(heatmaps, node.name)
    return [
        Explanation(
            heatmap=heatmaps[row],
            raw=raw[row],
            masks={},
            loss=(),
            passes=Passes(passes, 0),
            node=node.name(row),
            image=images[row].detach(),
            facts={"preset": name},
        )
        for row in range(len(images))
    ]


def _check_finite(raw: Tensor, node: Node) -> None:
    wrong = (~torch.isfinite(raw.flatten(1)).all(dim=1)).nonzero().flatten().tolist()
    if wrong:
        raise ComputationError(
            f"the similarity map of {node.name(wrong[0])} is not finite for image {wrong[0]}; "
            "check its region vectors, or use float32 if the model is in half precision"
        )
