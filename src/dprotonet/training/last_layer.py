"""The last layer on its own: what the stage after a push does, for a network whose scores are known already.

Only the head learns, so the problem is convex and an epoch is a few matrix products.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Adam

from dprotonet.errors import ComputationError
from dprotonet.inference.head import Head
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.training.objective import BatchLoss, HeadObjective
from dprotonet.training.scores import ScoreViews
from dprotonet.training.views import ProcessShare, epoch_parts


@dataclass(frozen=True)
class LastLayer:
    """How the head learns: the numbers of training's own last-layer stage."""

    epochs: int = 20
    rate: float = 1e-4
    batch: int = 60
    seed: int = 0
    loss: PrototypeLoss = field(default_factory=PrototypeLoss)


def train_head(
    head: Head, views: ScoreViews, prototype_class: Tensor, *, settings: LastLayer
) -> Iterator[float]:
    """Epoch by epoch, yielding the mean loss: cross-entropy and Eq. (7); the rest of Eq. (4) stays."""
    objective = HeadObjective(head, settings.loss, prototype_class=prototype_class)
    optimizer = Adam(head.parameters(), lr=settings.rate)
    labels, device = torch.as_tensor(views.labels), head.weight.device
    for epoch in range(1, settings.epochs + 1):
        parts = epoch_parts(
            views, seed=settings.seed, epoch=epoch, batch=settings.batch, share=ProcessShare()
        )
        total = 0.0
        for part in parts:
            rows = torch.tensor([index for index, _ in part.keys])
            step: BatchLoss = objective(views.scores[rows].to(device), labels[rows].to(device))
            optimizer.zero_grad()
            step.terms.total.backward()
            optimizer.step()
            head.after_step()
            total += step.terms.total.item() * len(rows)
        if total != total:
            raise ComputationError("the loss of the last layer is not finite; lower --rate-head")
        yield total / len(views)
