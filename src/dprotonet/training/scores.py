"""Scores of a network whose prototypes are frozen: taken once, they serve while only the head learns."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from dprotonet.data.transforms import View
from dprotonet.network import DProtoNet
from dprotonet.training.evaluation import share_of
from dprotonet.training.views import Key, ViewSource, chunks, load


@dataclass(frozen=True)
class ScoreViews:
    """Scores (N, P), a row for every view, served like images."""

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
    keys: Sequence[Key] | None = None,
    batch: int = 60,
    workers: int = 0,
) -> ScoreViews:
    """Of these views, or of the plain images; every process gets all scores, in the order of the keys."""
    network.eval()
    wanted = [(index, 0) for index in range(len(views))] if keys is None else list(keys)
    share = share_of(accelerator)
    pieces = []
    for view in load(views, chunks(share.of(wanted), batch), workers=workers):
        with accelerator.autocast():
            scores = network.evidence(view.inputs.to(accelerator.device)).scores
        pieces.append(scores.float().cpu())
    parts: list[Tensor] = gather_object([torch.cat(pieces) if pieces else torch.empty(0)])
    found = torch.empty(len(wanted), next(part.shape[1] for part in parts if len(part)))
    for process, part in enumerate(parts):
        if len(part):  # of few images a process may have none
            found[process :: share.processes] = part
    return ScoreViews(found, [views.labels[index] for index, _ in wanted])
