"""How XProtoNet explains itself: where each prototype occurs, its map enlarged to the image.

The map of a class is the sum of the maps of all prototypes that speak for it, each times its contribution.
The network is reached through callables and tensors only.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Question
from dprotonet.interpretation.nodes import precision
from dprotonet.interpretation.prototype_maps import PrototypeMaps, check_pair
from dprotonet.ops import upsample

Occurring = Callable[[Tensor], tuple[Tensor, Tensor]]
Differing = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, labels (B,), versus (B,) to (B, h, w)


class OccurrenceMaps(PrototypeMaps):
    """Explains classes and prototypes of an XProtoNet by one forward pass.

    Of two classes compared: where one is ahead of the other in this image; with `differing`, the places in
    which their prototypes differ, the same both ways. A network that confuses two classes has missed
    something there, and is ahead elsewhere by chance.

    `occurring`: images to maps (B, P, h, w) and scores (B, P); `weight` (C, P): the last layer.
    Unstated: XProtoNet shows a map for each prototype; of a class we show their sum, by contribution.
    """

    name = "occurrence"

    def __init__(
        self,
        model: nn.Module,
        *,
        occurring: Occurring,
        weight: Tensor,
        differing: Differing | None = None,
        classes: Sequence[str] = (),
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(model, weight=weight, classes=classes, internal_batch_size=internal_batch_size)
        self.occurring, self.differing = occurring, differing

    def _blocks(self, question: Question) -> Iterator[Tensor]:
        node, images = question.node, question.images.detach().to(precision(self.network))
        if not isinstance(node, ContrastNode) or self.differing is None:
            yield from super()._blocks(question)
            return
        check_pair(node, self.weight)
        blocks = (values.split(question.batch) for values in (images, node.labels, node.versus))
        for block, labels, versus in zip(*blocks, strict=True):
            apart = self.differing(block, labels.to(block.device), versus.to(block.device))
            yield upsample(apart.float(), (images.shape[-2], images.shape[-1]))

    def _own_maps(self, images: Tensor, numbers: Tensor) -> Tensor:
        maps, _ = self.occurring(images.to(precision(self.network)))
        rows = maps.expand(len(numbers), *maps.shape[1:])
        chosen = rows[torch.arange(len(numbers), device=maps.device), numbers.to(maps.device)]
        return upsample(chosen.float(), (images.shape[-2], images.shape[-1]))

    def _maps(self, images: Tensor, weights: Tensor, batch: int) -> Iterator[Tensor]:
        blocks = images.to(precision(self.network)).split(batch)
        for block, wanted in zip(blocks, weights.split(batch), strict=True):
            maps, scores = self.occurring(block)
            said = wanted.to(maps.device) * scores.float().clamp_min(0)
            summed = torch.einsum("bp,bphw->bhw", said, maps.float())
            yield upsample(summed, (images.shape[-2], images.shape[-1]))
