"""Where two classes are told apart: what every place adds to the difference of their logits, on either side.

A decoder that masks an image asks what keeps the difference up. Where a network confuses two classes that is
nearly everything, for the part that should decide has been outvoted. Here every place is asked what it adds,
for the one class or for the other, at several resolutions at once: on the way down, where places are fine,
and at the end, where the difference is made. Only a place that counts at all of them is hot.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation, Passes
from dprotonet.interpretation.borrowed import borrowed, differentiable
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Explainer, Question, maps_explained
from dprotonet.interpretation.first_guess import features_on_the_way
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.ops import upsample

Added = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, labels (B,), versus (B,) to (B, h, w)

_STRIDES = (8, 16)  # of the levels on the way down; finer ones follow edges, coarser ones hold no parts
_TINY = torch.finfo(torch.float32).tiny


class ContrastMaps(Explainer):
    """Explains a `ContrastNode` by a forward and a backward pass of the image and of its mirror image.

    The heat of a place is the squared product of c² over levels, each relative to its largest, where c =
    Σ features · gradient of the difference, and c² the mean of both images. The square makes places of second
    rank recede and leaves the order as it is; docs/parts.md has the map without. Its side is the sign of c
    at the last level, or of what the network itself says that its places add: `added`, one pass more.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        added: Added | None = None,
        classes: Sequence[str] = (),
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(model, classes=classes, batch=internal_batch_size)
        self.added = added

    def explained(self, question: Question) -> list[Explanation]:
        node = question.node
        if not isinstance(node, ContrastNode):
            raise UserError("contrast maps compare two classes; give a ContrastNode")
        with borrowed(node.model), differentiable():
            task = question.task()
            found = [self._one(task, node, row) for row in range(task.count)]
        heat, sides = (torch.cat(maps) for maps in zip(*found, strict=True))
        forward, backward = task.passes
        passes = Passes(forward + (self.added is not None), backward)
        # Heat is relative to the largest already, and nothing is cold that counts a little.
        return maps_explained(
            question, heat, passes=passes, facts={"preset": "contrast"}, heatmaps=heat, sides=sides
        )

    def _one(self, task: MaskingTask, node: ContrastNode, row: int) -> tuple[Tensor, Tensor]:
        """Heat and side of one image, (1, H, W) each."""
        rows = task.rows[row : row + 1]
        images = task.images[rows]
        plain = features_on_the_way(task, images, rows, strides=_STRIDES)
        mirrored = features_on_the_way(task, images.flip(-1), rows, strides=_STRIDES)
        if not plain or len(plain) != len(mirrored):
            raise UserError(f"{node.name(row)} has no feature map with a gradient; use MDM")
        energies = [
            (upsample(one.square(), task.size) + upsample(other.square(), task.size).flip(-1)) / 2
            for one, other in zip(plain, mirrored, strict=True)
        ]
        return _product(energies).square(), upsample(self._side(images, node, rows, plain[-1]), task.size)

    def _side(self, images: Tensor, node: ContrastNode, rows: Tensor, last: Tensor) -> Tensor:
        if self.added is None:
            return last
        labels, versus = (classes.to(images.device)[rows] for classes in (node.labels, node.versus))
        with torch.no_grad():
            return self.added(images.to(last.device), labels, versus).float()


def _product(levels: Sequence[Tensor]) -> Tensor:
    """Of maps (B, H, W), each relative to its largest place; the largest of the product is 1, or all is 0."""
    total = torch.ones_like(levels[0])
    for level in levels:
        total = _relative(total * _relative(level))
    return total


def _relative(maps: Tensor) -> Tensor:
    return maps / maps.amax(dim=(-2, -1), keepdim=True).clamp_min(_TINY)
