"""ProtoPool's inference (Rymarczyk et al., 2022): classes share a pool of prototypes.

Every class has slots, and each slot chooses a prototype of the pool, by a distribution that begins broad and
becomes a choice while it is learned (Gumbel-softmax). A prototype's score is focal: how much more similar its
nearest region is than the average region.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, gumbel_softmax, linear, one_hot

from dprotonet.inference.head import Head
from dprotonet.inference.losses import foreign_weight
from dprotonet.inference.prototypes import Prototypes, Scored

_TEMPERATURE = 0.5  # of the Gumbel-softmax itself


class FocalPrototypes(Prototypes):
    """g = max_k g_k - mean_k g_k over the regions k of an image: what is everywhere says nothing."""

    def forward(self, regions: Tensor) -> Scored:
        scored = super().forward(regions)
        return scored._replace(scores=scored.scores - self._average(regions))

    def _average(self, regions: Tensor) -> Tensor:
        """The mean similarity over regions, (B, P)."""
        wide = torch.promote_types(torch.float32, regions.dtype)
        with torch.autocast(regions.device.type, enabled=False):
            places = self.similarity.space(regions.to(wide))
            ideal = self.similarity.ideal(self.vectors.to(wide))
            lengths = places.square().sum(dim=-1, keepdim=True) + ideal.square().sum(dim=-1)
            distances = (lengths - 2 * places @ ideal.T).clamp_min(0)  # (B, R, P)
            return self.similarity.scores(distances).mean(dim=1)


class Slots(nn.Module):
    """Which prototype of the pool each slot of a class holds, (C, K, P): sums to 1 over the pool.

    While it learns a soft and random choice, otherwise the likeliest prototype alone.
    Unstated: whether the temperature τ also divides the noise. As in its authors' code it does not, so that
    choices become deterministic as τ falls (`sharpness` is 1/τ).
    """

    def __init__(self, classes: int, slots: int, prototypes: int) -> None:
        super().__init__()
        spread = math.sqrt(2 / ((classes + prototypes) * slots))  # Xavier, as its code has it
        self.logits = nn.Parameter(spread * torch.randn(classes, slots, prototypes))
        self.sharpness = 1.0

    def forward(self) -> Tensor:
        if self.training:
            return gumbel_softmax(self.sharpness * self.logits, tau=_TEMPERATURE, dim=-1)
        return self.choice()

    def choice(self) -> Tensor:
        """The likeliest prototype of every slot, as 0 and 1."""
        held = one_hot(self.logits.detach().argmax(dim=-1), self.logits.shape[-1])
        return held.to(self.logits.dtype)


def sharpness(epoch: int, epochs: int, most: float = 1e3) -> float:
    """1/τ in an epoch (from 1): τ falls as the root of the epoch to a thousandth within `epochs`."""
    return most * math.sqrt(min(1.0, epoch / epochs))


class SlotHead(Head):
    """logit_c = Σ over slots of w · Σ_p q_p g_p; all slots are connected to all classes, (C, C·K).

    `weight` (C, P) is what this comes to for each prototype: its scores times these add up to the logits.
    """

    def __init__(self, slots: Slots, *, own: float = 1.0, other: float = 0.0) -> None:
        nn.Module.__init__(self)
        classes, count, _ = slots.logits.shape
        self.slots = slots
        self.connection = nn.Linear(classes * count, classes, bias=False)
        with torch.no_grad():
            self.connection.weight.copy_(torch.where(self._belongs(), own, other))

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.connection.weight @ self.slots.choice().flatten(0, 1)

    def forward(self, scores: Tensor) -> Tensor:
        held = linear(scores, self.slots().flatten(0, 1))  # (B, C·K)
        logits: Tensor = self.connection(held)
        return logits

    def foreign(self, prototype_class: Tensor) -> Tensor:
        """Σ|w| between classes and the slots of others, Eq. (7)."""
        return foreign_weight(self.connection.weight, self._slot_class())

    def owned(self, prototype_class: Tensor) -> Tensor:
        """Of every class those that its slots hold."""
        return self.slots.choice().any(dim=1)

    def sources(self, prototype_class: Tensor) -> Tensor:
        """Images of the classes that hold a prototype; any image for one that nobody holds."""
        held = self.owned(prototype_class)
        return held | ~held.any(dim=0)

    def orthogonality(self) -> Tensor:
        """The mean over slots of Σ cos(q_k, q_l) with the other slots l of the class: none holds what another
        does. Of the logits q, as in its code."""
        logits = self.slots.logits
        cosines = cosine_similarity(logits.unsqueeze(2), logits.unsqueeze(1), dim=-1)  # (C, K, K)
        return cosines.sum(dim=-1).mean() - 1

    def _slot_class(self) -> Tensor:
        classes, count, _ = self.slots.logits.shape
        return torch.arange(classes, device=self.slots.logits.device).repeat_interleave(count)

    def _belongs(self) -> Tensor:
        return torch.arange(len(self.slots.logits)).unsqueeze(1) == self._slot_class()
