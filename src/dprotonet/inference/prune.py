"""Pruning as ProtoPNet does it: a prototype stays if enough of its nearest training images are of its class.

Every image counts once, by its nearest region. The field loops over all pairs of image and prototype in
Python; here a running minimum of k rows does it, batch by batch, so that the memory is that of one batch.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.inference.head import Head
from dprotonet.inference.pool import SlotHead
from dprotonet.inference.presence import ChannelMaximum
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion, any_region


class NearestImages:
    """The `nearest` images of every prototype so far: distances, labels, index (P, nearest), nearest first.

    `index` numbers the images in the order in which they were looked at.
    """

    def __init__(self, prototypes: int, *, nearest: int = 6, device: torch.device | str = "cpu") -> None:
        if nearest < 1:
            raise UserError(f"nearest is {nearest}; at least one image has to be looked at")
        self.distances = torch.full((prototypes, nearest), torch.inf, device=device)
        self.labels = torch.full((prototypes, nearest), -1, device=device)
        self.index = torch.full((prototypes, nearest), -1, device=device)
        self.seen = 0

    @torch.no_grad()
    def update(self, distances: Tensor, labels: Tensor) -> None:
        """Look at a batch: distances (B, P), labels (B,)."""
        # The later a batch, the fewer prototypes find anything nearer in it: only these are sorted.
        moved = (distances.amin(dim=0) < self.distances[:, -1]).nonzero().squeeze(1)
        pool = torch.cat([self.distances[moved], distances[:, moved].T.to(self.distances.dtype)], dim=1)
        self.distances[moved], column = pool.topk(self.distances.shape[1], dim=1, largest=False)
        numbers = torch.arange(self.seen, self.seen + len(labels), device=labels.device)
        for kept, fresh in ((self.labels, labels), (self.index, numbers)):
            kept[moved] = torch.cat([kept[moved], fresh.expand(len(moved), -1)], dim=1).gather(1, column)
        self.seen += len(labels)

    def of_own_class(self, prototype_class: Tensor, among: Tensor | None = None) -> Tensor:
        """How many of its nearest images, or the first `among` (P,), each prototype shares its class with."""
        own = self.labels == prototype_class.unsqueeze(1)
        if among is not None:
            own &= torch.arange(own.shape[1], device=own.device) < among.unsqueeze(1)
        return own.sum(dim=1)


def kept_prototypes(own: Tensor, prototype_class: Tensor, *, least: int = 3) -> Tensor:
    """Which prototypes (P,) stay: those with `least` or more nearest images of their class.

    Deviation: a class that would lose all its prototypes keeps the best one; ProtoPNet's code leaves it
    without any, so that it can hardly be predicted.
    """
    kept = own >= least
    for label in prototype_class.unique().tolist():
        mine = (prototype_class == label).nonzero().squeeze(1)
        if not kept[mine].any():
            kept[mine[own[mine].argmax()]] = True
    return kept


class Pruned(NamedTuple):
    """What is left of prototype layer and head."""

    prototypes: Prototypes
    head: Head


@torch.no_grad()
def pruned(prototypes: Prototypes, head: Head, kept: Tensor) -> Pruned:
    """Both without the prototypes that are not `kept` (P,) bool; what remains is unchanged."""
    if isinstance(head, SlotHead):
        raise UserError(
            "prototypes of a pool cannot be pruned: slots that hold one would choose another; keep them all"
        )
    assignment = prototypes.assignment
    if isinstance(assignment, PartRegion):
        assignment = PartRegion(assignment.part[kept])
    elif isinstance(assignment, ChannelMaximum):
        assignment = ChannelMaximum(assignment.channel[kept])
    elif assignment is not any_region:
        raise UserError("prototypes that each have a region of their own (XProtoNet) cannot be pruned")
    vectors, owner = prototypes.vectors.detach()[kept], prototypes.prototype_class[kept]
    fewer = Prototypes(1, 1, vectors.shape[1], similarity=prototypes.similarity, assignment=assignment)
    fewer.replace(vectors, owner)
    return Pruned(fewer, head.narrowed(kept))


@dataclass(frozen=True)
class PruneRule:
    """ProtoPNet's numbers: at least 3 of the 6 nearest."""

    nearest: int = 6
    least: int = 3

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.nearest:
            raise UserError(f"least is {self.least}; it must be between 1 and nearest, {self.nearest}")
