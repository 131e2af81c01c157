"""Several labels per image: a head with a bias for each label, and the loss of the labels one by one.

The paper has one class per image. Here each label has prototypes of its own and a sigmoid: what speaks for a
label adds up to its logit, together with the bias, which is what an image without any of it gets.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from dprotonet.inference.head import Head
from dprotonet.inference.losses import PrototypeLoss, separation_distance
from dprotonet.inference.own import own_prototypes


class LabelHead(Head):
    """logit_l = b_l + Σ_j w_lj g_j.

    Deviation: the paper's head has no bias. A sigmoid needs one: similarities are not negative, so that
    without it a label could hardly be denied.
    Deviation: the paper's weights to prototypes of other classes start below 0. Another label is no evidence
    against this one, so here they are and stay 0; and what looks like a label never speaks against it.
    """

    own: Tensor

    def __init__(self, prototype_class: Tensor) -> None:
        super().__init__(prototype_class, own=1.0, other=0.0)
        self.register_buffer("own", self.weight.detach() > 0, persistent=False)
        self.bias = nn.Parameter(torch.zeros(len(self.weight)))

    def forward(self, scores: Tensor) -> Tensor:
        return super().forward(scores) + self.bias

    @torch.no_grad()
    def after_step(self) -> None:
        """Weights of a label's own prototypes stay 0 or more, others 0."""
        self.weight.clamp_min_(0).mul_(self.own)

    def narrowed(self, kept: Tensor) -> Head:
        """The same layer without the prototypes that are not `kept` (P,) bool."""
        fewer = super().narrowed(kept)
        assert isinstance(fewer, LabelHead)
        fewer.own = self.own[:, kept].clone()
        return fewer


@dataclass(frozen=True)
class LabelLoss(PrototypeLoss):
    """Eq. (4) for several labels: cross-entropy of each label, cluster and separation by label.

    Deviation: the paper has one class per image. Eq. (5) is here the mean over pairs of an image and a label
    that it has, Eq. (6) goes by the labels that it has not. `class_weight` is what an image with the label
    weighs beside one without.
    """

    def entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean binary cross-entropy over images and labels."""
        weight = logits.new_tensor(self.class_weight) if self.class_weight else None
        wanted = labels.to(logits) * (1 - self.smoothing) + self.smoothing / 2
        return binary_cross_entropy_with_logits(logits, wanted, pos_weight=weight)

    def right(self, logits: Tensor, labels: Tensor) -> float:
        """How many images are right, each counting by the share of its labels that are."""
        return ((logits > 0) == (labels > 0)).float().mean(dim=1).sum().item()

    def near(self, distances: Tensor, labels: Tensor, prototype_class: Tensor, part: Tensor | None) -> Tensor:
        return label_cluster_loss(distances, labels, prototype_class, part)

    def far(self, distances: Tensor, labels: Tensor, prototype_class: Tensor) -> Tensor:
        absent = labels.sum(dim=1) < labels.shape[1]  # an image with all labels has nothing to keep away from
        if not absent.any():
            return distances.new_zeros(())
        own = own_prototypes(labels, prototype_class)
        return separation_distance(distances[absent], own[absent])


def label_cluster_loss(
    distances: Tensor, labels: Tensor, prototype_class: Tensor, part: Tensor | None = None
) -> Tensor:
    """Mean distance to the nearest prototype over pairs of an image and a label that it has, Eq. (5).

    distances (B, P), labels (B, L) of 0 and 1. Where prototypes belong to parts, `part` (P,), to the nearest
    of each part. 0 of a batch without any label.
    """
    parts = 1 if part is None else int(part.max()) + 1
    place = prototype_class * parts + (0 if part is None else part)
    nearest = distances.new_full((len(distances), labels.shape[1] * parts), torch.inf)
    nearest = nearest.scatter_reduce(1, place.expand_as(distances), distances, reduce="amin")
    chosen = nearest[(labels > 0).repeat_interleave(parts, dim=1)]
    chosen = chosen[chosen.isfinite()]  # pruning may have left a label without some parts
    return chosen.mean() if len(chosen) else distances.new_zeros(())
