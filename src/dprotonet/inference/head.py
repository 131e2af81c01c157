"""The fully connected layer f_h: scores to logits, Eq. (3)."""

import copy

import torch
from torch import Tensor, nn

from dprotonet.inference.losses import foreign_weight


class Head(nn.Module):
    """logit_c = Σ_j w_cj g_j without bias; weight 1 to the own class and -0.5 to the others at the start.

    Unstated: the initial weights; these are ProtoPNet's, whose training the paper follows.
    """

    def __init__(self, prototype_class: Tensor, *, own: float = 1.0, other: float = -0.5) -> None:
        super().__init__()
        classes = int(prototype_class.max()) + 1
        belongs = torch.arange(classes).unsqueeze(1) == prototype_class  # (C, P)
        self.weight = nn.Parameter(torch.where(belongs, own, other))

    def contributions(self, scores: Tensor, label: Tensor) -> Tensor:
        """w·g of every prototype to the logit of `label` (B,); scores (B, P). Their sum is the logit."""
        return scores * self.weight[label]

    def forward(self, scores: Tensor) -> Tensor:
        return scores @ self.weight.T

    def narrowed(self, kept: Tensor) -> "Head":
        """The same layer without the prototypes that are not `kept` (P,) bool."""
        fewer = copy.deepcopy(self)
        fewer.weight = nn.Parameter(self.weight.detach()[:, kept].clone())
        return fewer

    # ── what other networks have otherwise ──

    def after_step(self) -> None:
        """After each step of the optimiser that changed it."""

    def learned(self, logits: Tensor) -> Tensor:
        """What the cross-entropy sees of the logits while training."""
        return logits

    def foreign(self, prototype_class: Tensor) -> Tensor:
        """Σ|w| between classes and prototypes of others, Eq. (7)."""
        return foreign_weight(self.weight, prototype_class)

    def owned(self, prototype_class: Tensor) -> Tensor:
        """Which prototypes are a class's own, (C, P) bool."""
        classes = torch.arange(len(self.weight), device=prototype_class.device)
        return classes.unsqueeze(1) == prototype_class

    def sources(self, prototype_class: Tensor) -> Tensor:
        """Images of which classes a prototype may come from, (C, P) bool."""
        return self.owned(prototype_class)
