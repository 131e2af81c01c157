"""PIP-Net's inference (Nauta et al., 2023): prototypes are channels, present or absent, and nobody's own.

A place's features are shares of all prototypes, softmax over channels, so region vectors lie on the simplex
and prototype d is its corner e_d. With `PresentCosine` the distance is 2 - 2 z_d, and the score of the
nearest region the presence p_d = max over places of z_d. A sparse layer without negative weights adds
presences up to a class's points. The losses that make prototypes out of channels are here too.
"""

import torch
from torch import Tensor, nn

from dprotonet.inference.head import Head
from dprotonet.inference.nearest import Nearest

_TINY = 1e-8  # keeps logarithms finite, as its code does


class ChannelMaximum(nn.Module):
    """Prototype j is the corner of channel `channel` (P,): its nearest region has most of that channel.

    The answer of `any_region` for such prototypes on the simplex, without comparing all channels.
    """

    channel: Tensor

    def __init__(self, channel: Tensor) -> None:
        super().__init__()
        self.register_buffer("channel", channel)

    def forward(self, regions: Tensor, vectors: Tensor, wanted: Tensor | None = None) -> Nearest:
        channel = self.channel if wanted is None else self.channel[wanted]
        most = regions.index_select(2, channel).float().max(dim=1)
        return Nearest(2 - 2 * most.values, most.indices)


class PresenceHead(Head):
    """Weights (C, P) from prototypes that belong to no class: never negative, and most of them 0 in the end.

    Unstated: how the weights are initialised and become sparse; here from N(1, 0.1), with 0.001 subtracted
    after every step, as in its authors' code.
    """

    shrinkage = 1e-3

    def __init__(self, prototypes: int, classes: int) -> None:
        super().__init__(torch.arange(prototypes) % classes)
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(classes, prototypes))

    @torch.no_grad()
    def after_step(self) -> None:
        self.weight.sub_(self.shrinkage).clamp_(min=0)

    def learned(self, logits: Tensor) -> Tensor:
        """log(o² + 1), what the cross-entropy sees while training."""
        return logits.square().log1p()

    def foreign(self, prototype_class: Tensor) -> Tensor:
        """Nothing: no prototype is another class's."""
        return self.weight.new_zeros(())

    def owned(self, prototype_class: Tensor) -> Tensor:
        """Of every class those that speak for it."""
        return self.weight.detach() > 0

    def sources(self, prototype_class: Tensor) -> Tensor:
        """A prototype may be found in any image."""
        return torch.ones_like(self.weight, dtype=torch.bool)


def alignment_loss(one: Tensor, other: Tensor) -> Tensor:
    """L_A = -mean log <z', z''> over places of two views that show the same; both (N, D) on the simplex.

    Each view in turn is what the other has to agree with, without a gradient of its own.
    """
    first, second = ((z * fixed.detach()).sum(dim=1) for z, fixed in ((one, other), (other, one)))
    return -((first + _TINY).log().mean() + (second + _TINY).log().mean()) / 2


def uniformity_loss(presence: Tensor) -> Tensor:
    """L_T = -mean_d log tanh Σ_b p_bd: every prototype is present somewhere in the batch; presence (B, P)."""
    return -(presence.sum(dim=0).tanh() + _TINY).log().mean()
