"""What PIP-Net minimises: prototypes that mean the same in two views of an image, and then classes.

First without classes, L_A and L_T alone; then L_C + λ_A L_A + λ_T L_T (Nauta et al., 2023).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import grid_sample

from dprotonet.inference.losses import LossTerms, PrototypeLoss
from dprotonet.inference.presence import alignment_loss, uniformity_loss
from dprotonet.network import DProtoNet
from dprotonet.training.objective import BatchLoss


class PresenceObjective(nn.Module):
    """Of pairs (B, 2, C, H, W), the plain image and a view of it; places (B, h, w, 2) are the view's in it.

    Deviation: PIP-Net's two views of an image differ in colour and show the same at each place. Ours, those
    of all networks here, are warped; the plain image's map is warped alike before the two are compared.
    L_T is of the images computed at a time: with `--accumulate` of a piece.
    """

    def __init__(
        self, network: DProtoNet, loss: PrototypeLoss, *, alignment: float, uniformity: float
    ) -> None:
        super().__init__()
        self.network = network
        self.loss = loss
        self.alignment = alignment
        self.uniformity = uniformity

    def forward(self, inputs: Tensor, labels: Tensor, places: Tensor) -> BatchLoss:
        shares = self.network.encoder.feature_map(inputs.transpose(0, 1).flatten(0, 1)).float()
        evidence = self.network.evidence_of(self.network.encoder.regions(shares))
        logits, head = evidence.logits.float(), self.network.head
        entropy = self.loss.entropy(head.learned(logits), labels.repeat(2))
        plain, view = shares.chunk(2)
        aligned = alignment_loss(flat(moved_alike(plain, places)), flat(view))
        # Both views have to show every prototype.
        uniform = torch.stack([uniformity_loss(presence) for presence in evidence.scores.chunk(2)]).mean()
        total = self._total(entropy, aligned, uniform)
        nothing = torch.zeros_like(entropy)
        terms = LossTerms(total, entropy, nothing, nothing, nothing)
        return BatchLoss(terms, logits[: len(labels)], {"alignment": aligned, "uniformity": uniform})

    def _total(self, entropy: Tensor, aligned: Tensor, uniform: Tensor) -> Tensor:
        return entropy + self.alignment * aligned + self.uniformity * uniform


class PretrainingObjective(PresenceObjective):
    """The same without classes: `share` · L_A + 5 L_T, the share growing from epoch to epoch up to 1.

    Unstated: these weights; they are its code's.
    """

    share = 1.0

    def _total(self, entropy: Tensor, aligned: Tensor, uniform: Tensor) -> Tensor:
        return self.share * aligned + 5 * uniform


def moved_alike(maps: Tensor, places: Tensor) -> Tensor:
    """Maps (B, D, h, w) of plain images as views of them show them; places (B, h, w, 2)."""
    return grid_sample(maps, places.to(maps.dtype), padding_mode="border", align_corners=False)


def flat(maps: Tensor) -> Tensor:
    """(B, D, h, w) to (B·h·w, D)."""
    return maps.flatten(2).transpose(1, 2).flatten(0, 1)
