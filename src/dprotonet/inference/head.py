"""The fully connected layer f_h: scores to logits, Eq. (3)."""

import torch
from torch import Tensor, nn


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
