"""What a training step minimises, as modules, so that one wrapper (DDP, autocast) sees forward and loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.encoder.part_maps import WithParts
from dprotonet.inference.head import Head
from dprotonet.inference.losses import LossTerms, PrototypeLoss, excess_area, without_some_parts
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import BlackBox, DProtoNet, Evidence

_AREA = 2.0  # weight of the area that parts have too much


class BatchLoss(NamedTuple):
    """The loss terms and the logits (B, C) of a batch; `further` are losses beyond Eq. (4), unweighted."""

    terms: LossTerms
    logits: Tensor
    further: Mapping[str, Tensor] = {}

    @property
    def named(self) -> dict[str, Tensor]:
        """All that is logged of it; `loss` is what was minimised."""
        total, *terms = self.terms
        return {"loss": total, **dict(zip(LossTerms._fields[1:], terms, strict=True)), **self.further}

    def plus(self, name: str, value: Tensor, *, weight: float) -> "BatchLoss":
        """With a further loss, by its name."""
        terms = self.terms._replace(total=self.terms.total + weight * value)
        return self._replace(terms=terms, further={**self.further, name: value})


@dataclass(frozen=True)
class Sums:
    """What is logged of some batches: every loss term and the right answers, summed over their images."""

    terms: Mapping[str, float] = field(default_factory=dict)
    right: float = 0
    images: float = 0

    def __add__(self, other: "Sums") -> "Sums":
        names = [*self.terms, *(name for name in other.terms if name not in self.terms)]
        terms = {name: self.terms.get(name, 0.0) + other.terms.get(name, 0.0) for name in names}
        return Sums(terms, self.right + other.right, self.images + other.images)

    def mean(self, term: str) -> float:
        return self.terms[term] / max(self.images, 1)

    @property
    def accuracy(self) -> float:
        return self.right / max(self.images, 1)


class WholeObjective(nn.Module):
    """Eq. (4) of the whole network."""

    def __init__(self, network: DProtoNet, loss: PrototypeLoss) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, inputs: Tensor, labels: Tensor) -> BatchLoss:
        return prototype_step(self.network, self.loss, self.network.evidence(inputs), labels)


class PartAreaObjective(nn.Module):
    """Eq. (4) of a network of parts, and what its parts have beyond the share `most` of the image.

    Deviation: the paper has no such term, nor parts; without it training leaves nothing to the background
    (docs/parts.md).
    """

    def __init__(self, network: DProtoNet, loss: PrototypeLoss, *, most: float) -> None:
        super().__init__()
        self.network = network
        self.loss = loss
        self.most = most

    def forward(self, inputs: Tensor, labels: Tensor) -> BatchLoss:
        encoder = self.network.encoder
        assert isinstance(encoder.shaping, WithParts)
        feature_map = encoder.feature_map(inputs)
        evidence = self.network.evidence_of(encoder.regions(feature_map))
        step = prototype_step(self.network, self.loss, evidence, labels)
        area = excess_area(encoder.shaping.shares(feature_map).float(), self.most)
        return step.plus("area", area, weight=_AREA)


def prototype_step(network: DProtoNet, loss: PrototypeLoss, evidence: Evidence, labels: Tensor) -> BatchLoss:
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
    return BatchLoss(terms, logits)


class PlainObjective(nn.Module):
    """Cross-entropy alone, of a network without prototypes."""

    def __init__(self, network: BlackBox, loss: PrototypeLoss | None = None) -> None:
        super().__init__()
        self.network = network
        self.loss = loss or PrototypeLoss()

    def forward(self, inputs: Tensor, labels: Tensor) -> BatchLoss:
        logits = self.network(inputs).float()
        entropy = self.loss.entropy(logits, labels)
        nothing = torch.zeros_like(entropy)
        return BatchLoss(LossTerms(entropy, entropy, nothing, nothing, nothing), logits)


class HeadObjective(nn.Module):
    """Eq. (4) where only the head learns: scores (B, P) are given, cluster and separation are constants."""

    def __init__(self, head: Head, loss: PrototypeLoss, *, prototype_class: Tensor) -> None:
        super().__init__()
        self.head = head
        self.loss = loss
        self.prototype_class = prototype_class

    def forward(self, inputs: Tensor, labels: Tensor) -> BatchLoss:
        logits = self.head(inputs)
        entropy = self.loss.entropy(self.head.learned(logits), labels)
        sparse = self.head.foreign(self.prototype_class)
        nothing = torch.zeros_like(entropy)
        total = entropy + self.loss.foreign * sparse
        return BatchLoss(LossTerms(total, entropy, nothing, nothing, sparse), logits)
