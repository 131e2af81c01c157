"""The node for "why this class and not that one": the difference of two logits.

What two classes share moves both logits alike and leaves the difference alone. So a map of this node shows
what tells the two apart, where a map of either class alone shows the object.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.nodes import ClassNode, Guess, OwnActivation, check_labels
from dprotonet.interpretation.outputs import Model, Outputs


class ContrastNode(OwnActivation):
    """Logit of a class less that of another, for each image; `model`, module or function: images to logits.

    `versus` is one class for all images, or one for each. A map shows what speaks for the class and against
    the other, whichever is ahead. `maps`, if given, says where that is, for masks to start from.
    """

    rises = True  # what is looked for makes it larger, also where a blank image has more of it
    differs = True  # or as much of it

    def __init__(
        self,
        model: Model | Outputs,
        labels: Sequence[int] | Tensor,
        versus: int | Sequence[int] | Tensor,
        *,
        maps: Guess | None = None,
    ) -> None:
        own = ClassNode(model, labels, probability=False)
        other = ClassNode(model, [versus] if isinstance(versus, int) else versus).labels
        self.outputs, self.classifier = own.outputs, own.classifier
        self.model, self.labels, self.maps = own.model, own.labels, maps
        self.versus = other.expand(len(self.labels)) if len(other) == 1 else other
        if len(self.versus) != len(self.labels):
            raise UserError(f"{len(self.labels)} classes, and {len(self.versus)} to compare them with")
        for label in self.labels[self.labels == self.versus].tolist():
            raise UserError(f"class {label} is compared with itself; name another one")

    def name(self, row: int) -> str:
        return f"logit of class {int(self.labels[row])} less that of class {int(self.versus[row])}"

    def check(self, count: int) -> None:
        if len(self.labels) != count:
            raise UserError(f"{len(self.labels)} classes for {count} images; give exactly one per image")

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        here, versus = (classes[rows.cpu()] for classes in (self.labels, self.versus))
        scores = self.outputs.scores(images)
        check_labels(torch.cat([here, versus]), scores)
        pair = torch.stack([here, versus], dim=1).to(scores.device)
        ahead, behind = scores.gather(1, pair).split(1, dim=1)
        return ahead - behind

    def of_scores(self, row: int, scores: Tensor) -> Tensor:
        """The same () from the logits (C,) of one image."""
        label, versus = int(self.labels[row]), int(self.versus[row])
        if not 0 <= min(label, versus) <= max(label, versus) < len(scores):
            raise UserError(f"there is no class {max(label, versus)}; there are {len(scores)}")
        return scores[label] - scores[versus]

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        """What the network offers by `agreement(images, label, versus)`, (B,); or else the difference."""
        agreement = getattr(self.classifier, "agreement", None)
        if not callable(agreement):
            return self(images, rows).squeeze(1)
        label, versus = (classes.to(rows.device)[rows] for classes in (self.labels, self.versus))
        offered: Tensor = agreement(images, label, versus)
        return offered

    def guess(self, images: Tensor, rows: Tensor) -> Tensor | None:
        """Where the class is ahead of the other, (B, h, w), for masks to start from; None without `maps`."""
        return None if self.maps is None else self.maps(images, rows)
