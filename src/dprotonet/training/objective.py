"""What a training step minimises, as modules, so that one wrapper (DDP, autocast) sees forward and loss."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.encoder.part_maps import WithParts
from dprotonet.inference.head import Head
from dprotonet.inference.losses import LossTerms, PrototypeLoss, excess_area, without_some_parts
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import BlackBox, DProtoNet, Evidence

_AREA = 2.0  # weight of the area that parts have too much


class Step(NamedTuple):
    """The loss terms and the logits (B, C) of a batch."""

    terms: LossTerms
    logits: Tensor


class WholeObjective(nn.Module):
    """Eq. (4) of the whole network.

    Deviation: where regions are parts and `part_area` is below 1, the loss has a further term, what parts
    have too much of the image; without it training leaves nothing to the background (docs/parts.md).
    """

    def __init__(self, network: DProtoNet, loss: PrototypeLoss) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, inputs: Tensor, labels: Tensor) -> Step:
        encoder = self.network.encoder
        feature_map = encoder.feature_map(inputs)
        evidence = self.network.evidence_of(encoder.regions(feature_map))
        step = prototype_step(self.network, self.loss, evidence, labels)
        if self.loss.part_area == 1 or not isinstance(encoder.shaping, WithParts):
            return step
        shaped = encoder.shaping
        maps = feature_map[:, -shaped.channels :][:, : shaped.part_maps.parts].float()
        extra = _AREA * excess_area(maps, self.loss.part_area)
        return step._replace(terms=step.terms._replace(total=step.terms.total + extra))


def prototype_step(network: DProtoNet, loss: PrototypeLoss, evidence: Evidence, labels: Tensor) -> Step:
    """Eq. (4) of what the network said of a batch; where it says so, of some of its parts."""
    logits = evidence.logits.float()
    assignment = network.prototypes.assignment
    judged = logits
    if loss.part_dropout and isinstance(assignment, PartRegion):
        judged = network.head(without_some_parts(evidence.scores, assignment.part, loss.part_dropout)).float()
    terms = loss(
        judged,
        evidence.distances,
        labels,
        weight=network.head.weight,
        prototype_class=network.prototype_class,
        part=assignment.part if isinstance(assignment, PartRegion) else None,
    )
    return Step(terms, logits)


class PlainObjective(nn.Module):
    """Cross-entropy alone, of a network without prototypes."""

    def __init__(self, network: BlackBox, loss: PrototypeLoss | None = None) -> None:
        super().__init__()
        self.network = network
        self.loss = loss or PrototypeLoss()

    def forward(self, inputs: Tensor, labels: Tensor) -> Step:
        logits = self.network(inputs).float()
        entropy = self.loss.entropy(logits, labels)
        nothing = torch.zeros_like(entropy)
        return Step(LossTerms(entropy, entropy, nothing, nothing, nothing), logits)


class HeadObjective(nn.Module):
    """Eq. (4) where only the head learns: scores (B, P) are given, cluster and separation are constants."""

    def __init__(self, head: Head, loss: PrototypeLoss, *, prototype_class: Tensor) -> None:
        super().__init__()
        self.head = head
        self.loss = loss
        self.prototype_class = prototype_class

    def forward(self, inputs: Tensor, labels: Tensor) -> Step:
        logits = self.head(inputs)
        entropy = self.loss.entropy(self.head.learned(logits), labels)
        sparse = self.head.foreign(self.prototype_class)
        nothing = torch.zeros_like(entropy)
        total = entropy + self.loss.foreign * sparse
        return Step(LossTerms(total, entropy, nothing, nothing, sparse), logits)
