"""How XProtoNet explains itself: where each prototype occurs, its map enlarged to the image.

The map of a class is the sum of the maps of all prototypes that speak for it, each times its contribution.
The network is reached through callables and tensors only.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from dprotonet.interpretation.base import Explanation, borrowed
from dprotonet.interpretation.nodes import ClassNode, Node, precision
from dprotonet.interpretation.problem import check_images
from dprotonet.interpretation.similarity import explanations, prototype_weights
from dprotonet.ops import upsample

Occurring = Callable[[Tensor], tuple[Tensor, Tensor]]


class OccurrenceMaps:
    """Explains classes and prototypes of an XProtoNet by one forward pass.

    `occurring`: images to maps (B, P, h, w) and scores (B, P); `weight` (C, P): the last layer.
    Unstated: XProtoNet shows a map for each prototype; of a class we show their sum, by contribution.
    """

    def __init__(self, model: nn.Module, *, occurring: Occurring, weight: Tensor, batch: int = 32) -> None:
        self.model, self.occurring, self.batch = model, occurring, batch
        self.weight = weight.detach().float()

    def explain(self, images: Tensor, node: Node | None = None) -> list[Explanation]:
        """One explanation an image: of a ClassNode, of a PrototypeNode, or of the predicted class."""
        check_images(images, self.batch)
        watched = node if node is not None else self._predicted(images)
        watched.check(len(images))
        weights = prototype_weights(watched, self.weight)
        with borrowed(self.model), torch.inference_mode(False), torch.no_grad():
            raw = torch.cat(list(self._maps(images.detach(), weights)))
        return explanations(images, raw, watched, name="occurrence", passes=1 + (node is None))

    def _predicted(self, images: Tensor) -> ClassNode:
        labels = ClassNode.predicted(self.model, images, batch=self.batch).labels
        return ClassNode(self.model, labels, probability=False)

    def _maps(self, images: Tensor, weights: Tensor) -> Iterator[Tensor]:
        """Enlarged maps, (b, H, W) for every block of images."""
        blocks = images.to(precision(self.model)).split(self.batch)
        for block, wanted in zip(blocks, weights.split(self.batch), strict=True):
            maps, scores = self.occurring(block)
            said = wanted.to(maps.device) * scores.float().clamp_min(0)
            summed = torch.einsum("bp,bphw->bhw", said, maps.float())
            yield upsample(summed, (images.shape[-2], images.shape[-1]))
