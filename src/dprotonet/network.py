"""DProtoNet: the arrows between encoder and inference (Figure 2), and the black box it is compared with.

Images become region vectors, region vectors scores, scores logits. Nothing here knows how a heatmap is made.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Parts
from dprotonet.inference.contrast import directions_apart
from dprotonet.inference.head import Head
from dprotonet.inference.nearest import chosen_regions
from dprotonet.inference.pool import SlotHead
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import LogSimilarity, PresentCosine


class Evidence(NamedTuple):
    """All that a decision rests on: logits (B, C); scores, distances and region (B, P)."""

    logits: Tensor
    scores: Tensor
    distances: Tensor
    region: Tensor


class DProtoNet(nn.Module):
    """Classifies an image by what it looks like."""

    def __init__(self, encoder: Encoder, prototypes: Prototypes, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.prototypes = prototypes
        self.head = head

    def evidence(self, images: Tensor) -> Evidence:
        return self.evidence_of(self.encoder(images))

    def evidence_of(self, regions: Tensor) -> Evidence:
        """The same from region vectors (B, R, D)."""
        scores, distances, region = self.prototypes(regions)
        return Evidence(self.head(scores), scores, distances, region)

    def forward(self, images: Tensor) -> Tensor:
        return self.evidence(images).logits

    def contributions(self, evidence: Evidence, label: Tensor) -> Tensor:
        """w·g of every prototype (B, P) to the logit of `label` (B,)."""
        return self.head.contributions(evidence.scores, label)

    def agreement(self, images: Tensor, label: Tensor, versus: Tensor | None = None) -> Tensor:
        """How far the regions agree with what speaks for `label` (B,): Σ contribution · z·p / p·p, (B,).

        With `versus` (B,), with what speaks for the one more than for the other, less what speaks for the
        other more: contributions are then differences, and so is the logit.

        The gradient of a logit is lost where a prototype is met, for there the distance is flat; this one
        says what the evidence is made of. Contributions are constants in it. The logit itself where nothing
        speaks for the class, and for the cosine, with which the logit was measured to be the better guide.
        """
        regions = self.encoder(images)
        evidence = self.evidence_of(regions)
        logit, spoken = self._said(evidence, label, versus)
        if not isinstance(self.prototypes.similarity, LogSimilarity):
            return logit
        vectors = self.prototypes.vectors.detach()
        lengths = vectors.square().sum(dim=-1).clamp_min(torch.finfo(vectors.dtype).tiny)
        agreeing = (chosen_regions(regions, evidence.region) * vectors).sum(dim=-1) / lengths
        return torch.where(spoken.abs().sum(dim=1) > 0, (spoken * agreeing).sum(dim=1), logit)

    def _said(self, evidence: Evidence, label: Tensor, versus: Tensor | None) -> tuple[Tensor, Tensor]:
        """The logit (B,) of a class and what speaks for it (B, P); or how far both are ahead of another's."""
        logit = evidence.logits.gather(1, label.unsqueeze(1)).squeeze(1)
        spoken = self.contributions(evidence, label).detach()
        if versus is None:
            return logit, spoken.relu()
        behind = evidence.logits.gather(1, versus.unsqueeze(1)).squeeze(1)
        return logit - behind, spoken - self.contributions(evidence, versus).detach()

    @property
    def linear_in_parts(self) -> bool:
        """Whether logits are linear in region vectors that are parts, so that places have shares in them."""
        cosine = isinstance(self.prototypes.similarity, PresentCosine)
        parts = isinstance(self.encoder.regions, Parts)
        return cosine and parts and isinstance(self.prototypes.assignment, PartRegion)

    def added_by_places(self, images: Tensor, label: Tensor, versus: Tensor) -> Tensor:
        """What each place adds to the logit of `label` (B,) less that of `versus` (B,): (B, h, w).

        The places add up to the difference. Only for networks that are `linear_in_parts`.
        """
        if not self.linear_in_parts:
            raise ValueError("places have shares in a logit only if it is linear in regions that are parts")
        regions, assignment = cast(Parts, self.encoder.regions), cast(PartRegion, self.prototypes.assignment)
        towards = directions_apart(
            self.prototypes.vectors,
            self.head.weight,
            part=assignment.part,
            parts=regions.count,
            label=label,
            versus=versus,
        )
        return regions.added_by_places(self.encoder.feature_map(images), towards).sum(dim=1)

    def with_backbone(self, backbone: nn.Module) -> "DProtoNet":
        """The same network behind another backbone, sharing everything else."""
        encoder = Encoder(backbone, self.encoder.shaping, self.encoder.regions)
        return DProtoNet(encoder, self.prototypes, self.head)

    def without_backbone(self) -> "DProtoNet":
        """The same network, sharing every parameter, that takes the backbone's feature maps as input."""
        return self.with_backbone(nn.Identity())

    def parts(self) -> dict[str, nn.Module]:
        """What has a learning rate of its own (Section 4.3)."""
        shaped: dict[str, nn.Module] = {"shaping": self.encoder.shaping}
        if isinstance(self.encoder.regions, Parts):  # shape their features themselves
            shaped = {"shaping": self.encoder.regions, "part_maps": self.encoder.shaping}
        compared: dict[str, nn.Module] = {"prototypes": self.prototypes, "head": self.head}
        if isinstance(self.head, SlotHead):  # slots learn what to hold together with what there is to hold
            chosen = nn.ModuleList([self.prototypes, self.head.slots])
            compared = {"prototypes": chosen, "head": self.head.connection}
        return {"backbone": self.encoder.backbone, **shaped, **compared}

    @property
    def prototype_class(self) -> Tensor:
        return self.prototypes.prototype_class

    @torch.no_grad()
    def name_classes(self, found_in: Tensor) -> None:
        """Where classes share prototypes: note the class that each speaks for most, for those who list them.

        One that speaks for none is noted under the class of the image it was found in, `found_in` (P,).
        """
        owned = self.head.owned(self.prototype_class)
        most = self.head.weight.masked_fill(~owned, -torch.inf).argmax(dim=0)
        self.prototype_class.copy_(torch.where(owned.any(dim=0), most, found_in.to(most.device)))

    @torch.no_grad()
    def initialise_prototypes(self, vectors: Tensor) -> None:
        """Start the prototypes (P, D) from given region vectors."""
        self.prototypes.vectors.copy_(vectors)


class BlackBox(nn.Module):
    """The same backbone with global average pooling and a linear head: no prototypes, no reasons.

    Its encoder has one region, the whole map: the all-ones mask of Eq. (8) is the global average.
    """

    def __init__(self, encoder: Encoder, head: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.dropout = 0.0  # share of the pooled features that a training step does without

    def forward(self, images: Tensor) -> Tensor:
        return self.logits_of(self.encoder(images))

    def logits_of(self, regions: Tensor) -> Tensor:
        """The same from the one region vector (B, 1, D)."""
        pooled = dropout(regions.squeeze(1), self.dropout, self.head.training)
        logits: Tensor = self.head(pooled)
        return logits

    def with_backbone(self, backbone: nn.Module) -> "BlackBox":
        """The same network behind another backbone, sharing everything else."""
        other = BlackBox(Encoder(backbone, self.encoder.shaping, self.encoder.regions), self.head)
        other.dropout = self.dropout
        return other

    def without_backbone(self) -> "BlackBox":
        """The same network, sharing every parameter, that takes the backbone's feature maps as input."""
        return self.with_backbone(nn.Identity())

    def parts(self) -> dict[str, nn.Module]:
        """What has a learning rate of its own."""
        return {"backbone": self.encoder.backbone, "head": self.head}


Network = DProtoNet | BlackBox
