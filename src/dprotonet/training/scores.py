"""Scores of a network whose prototypes rest: taken once, they serve while only the head learns."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from dprotonet.data.transforms import View
from dprotonet.network import DProtoNet
from dprotonet.training.evaluation import share_of
from dprotonet.training.views import ViewSource, chunks, load, variant_of


@dataclass(frozen=True)
class ScoreViews:
    """Scores (N, P) of one view of every image, served like images."""

    scores: Tensor
    labels: Sequence[int]
    augmentations: int | None = 0

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, key: tuple[int, int]) -> View:
        return View(self.scores[key[0]], self.labels[key[0]], key[0])


@torch.no_grad()
def score_views(
    network: DProtoNet,
    views: ViewSource,
    accelerator: Accelerator,
    *,
    epoch: int | None = None,
    batch: int = 60,
    workers: int = 0,
) -> ScoreViews:
    """Of the variant that an epoch would look at, or of the plain images; every process gets all scores."""
    network.eval()
    keys = [
        (index, 0 if epoch is None else variant_of(epoch, index, views.augmentations))
        for index in range(len(views))
    ]
    pieces = []
    for view in load(views, chunks(share_of(accelerator).of(keys), batch), workers=workers):
        with accelerator.autocast():
            scores = network.evidence(view.inputs.to(accelerator.device)).scores
        pieces.append((torch.as_tensor(view.index), scores.float().cpu()))
    gathered = gather_object(pieces)
    order = torch.cat([index for index, _ in gathered]).argsort()
    return ScoreViews(torch.cat([scores for _, scores in gathered])[order], views.labels)
