"""The training loss, Eqs. (4)-(7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout

from dprotonet.inference.own import own_prototypes


def cluster_loss(distances: Tensor, own: Tensor, part: Tensor | None = None) -> Tensor:
    """Mean distance of each image to the nearest prototype of its class, Eq. (5); both (B, P).

    Where prototypes belong to parts, `part` (P,), to the nearest of each part, the mean over parts: no other
    part's prototype can stand in for it.
    """
    foreign = distances.masked_fill(~own, torch.inf)
    if part is None:
        return foreign.amin(dim=1).mean()
    parts = int(part.max()) + 1
    nearest = foreign.new_full((len(distances), parts), torch.inf)
    nearest = nearest.scatter_reduce(1, part.expand_as(foreign), foreign, reduce="amin")
    return nearest[nearest.isfinite()].mean()  # pruning may have left a class without some parts


def separation_distance(distances: Tensor, own: Tensor) -> Tensor:
    """Mean distance of each image to the nearest prototype of another class, -Sep of Eq. (6); both (B, P).

    Deviation: the paper writes Sep with a minus sign *and* gives it a negative weight; taken literally the
    two cancel and pull images towards prototypes of other classes. We return the distance, with weight -0.08.
    """
    return distances.masked_fill(own, torch.inf).amin(dim=1).mean()


def without_some_parts(scores: Tensor, part: Tensor, share: float) -> Tensor:
    """Scores (B, P) of which each image loses those of a `share` of its parts, `part` (P,); others make up.

    No part can then leave it to the others to tell classes apart. The expected value stays the same.
    """
    heard = dropout(scores.new_ones(len(scores), int(part.max()) + 1), share)
    return scores * heard[:, part]


def excess_area(maps: Tensor, most: float) -> Tensor:
    """How far all parts together have more than the share `most` of an image, its mean; maps (B, K, h, w).

    A part that has more places is there in more images, so that without it parts learn to share out the whole
    image among them, and nothing is left to the background.
    """
    return (maps.sum(dim=1).mean(dim=(-2, -1)) - most).relu().mean()


def foreign_weight(weight: Tensor, prototype_class: Tensor) -> Tensor:
    """Sum of |w| between classes and prototypes of other classes, Eq. (7); weight (C, P)."""
    classes = torch.arange(len(weight), device=weight.device).unsqueeze(1)
    return weight.abs().masked_fill(classes == prototype_class, 0).sum()


def balanced_weights(counts: Sequence[int]) -> tuple[float, ...]:
    """What an image of each class weighs, n / (C·n_c): all classes alike, and the mean over images is 1.

    C counts the classes that have images; one without weighs nothing.
    """
    present = [count for count in counts if count]
    return tuple(sum(present) / (len(present) * count) if count else 0.0 for count in counts)


class LossTerms(NamedTuple):
    """The total of Eq. (4) and its four unweighted terms."""

    total: Tensor
    cross_entropy: Tensor
    cluster: Tensor
    separation: Tensor
    foreign: Tensor


@dataclass(frozen=True)
class PrototypeLoss:
    """L = CrsEnt + λ1 Clst + λ2 Sep + λ3 l_w, Eq. (4), with λ of Section 4.3."""

    cluster: float = 0.8
    separation: float = -0.08
    foreign: float = 1e-4
    smoothing: float = 0.0  # of the cross-entropy's target
    class_weight: tuple[float, ...] = ()  # of each class in the cross-entropy; none: all alike
    part_dropout: float = 0.0  # share of the parts that the cross-entropy does without, where there are some

    def entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of a batch, each image weighed by its class.

        Divided by the number of images, not by their weights, so that it is the same of a batch as of its
        pieces and shares together, and over an epoch every class has its weight.
        """
        if not self.class_weight:
            return cross_entropy(logits, labels, label_smoothing=self.smoothing)
        each = cross_entropy(logits, labels, label_smoothing=self.smoothing, reduction="none")
        return (each * each.new_tensor(self.class_weight)[labels]).mean()

    def right(self, logits: Tensor, labels: Tensor) -> float:
        """How many images of a batch are right."""
        return (logits.argmax(1) == labels).sum().item()

    def near(self, distances: Tensor, labels: Tensor, prototype_class: Tensor, part: Tensor | None) -> Tensor:
        """The cluster loss, Eq. (5)."""
        return cluster_loss(distances, own_prototypes(labels, prototype_class), part)

    def far(self, distances: Tensor, labels: Tensor, prototype_class: Tensor) -> Tensor:
        """The separation, Eq. (6)."""
        return separation_distance(distances, own_prototypes(labels, prototype_class))

    def __call__(
        self,
        logits: Tensor,
        distances: Tensor,
        labels: Tensor,
        *,
        weight: Tensor,
        prototype_class: Tensor,
        part: Tensor | None = None,
    ) -> LossTerms:
        entropy = self.entropy(logits, labels)
        near = self.near(distances, labels, prototype_class, part)
        far = self.far(distances, labels, prototype_class)
        sparse = foreign_weight(weight, prototype_class)
        total = entropy + self.cluster * near + self.separation * far + self.foreign * sparse
        return LossTerms(total, entropy, near, far, sparse)
