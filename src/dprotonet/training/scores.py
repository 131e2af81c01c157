"""Scores of a network whose prototypes are frozen: taken once, they serve while only the head learns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from dprotonet.data.transforms import View
from dprotonet.network import DProtoNet
from dprotonet.training.evaluation import share_of
from dprotonet.training.processes import local_share, meet, of_local_main
from dprotonet.training.score_rows import Room, ScoreRows, nameless
from dprotonet.training.views import Key, Keys, ProcessShare, ViewSource, chunks, load


@dataclass(frozen=True)
class ScoreViews:
    """Scores (N, P), a row for every view, served like images."""

    scores: Tensor | ScoreRows
    labels: Sequence[int]
    augmentations: int | None = 0

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, key: tuple[int, int]) -> View:
        return View(self.scores[key[0]], self.labels[key[0]], key[0])


@dataclass(frozen=True)
class Scoring:
    """How scores are taken: so many images at a time, and in `folder` where they are too many for memory."""

    accelerator: Accelerator
    folder: Path
    batch: int = 60
    workers: int = 0


@torch.no_grad()
def score_views(
    network: DProtoNet, views: ViewSource, scoring: Scoring, *, keys: Sequence[Key] | None = None
) -> ScoreViews:
    """Of these views, or of the plain images; every process gets all scores, in the order of the keys."""
    network.eval()
    wanted = Keys.plain(len(views)) if keys is None else keys
    room = Room(len(wanted), len(network.prototype_class), scoring.folder)
    taken = _on_disk if room.on_disk else _gathered
    rows = taken(network, views, wanted, scoring, room)
    return ScoreViews(rows, [views.labels[index] for index, _ in wanted])


def _gathered(
    network: DProtoNet, views: ViewSource, wanted: Sequence[Key], scoring: Scoring, room: Room
) -> ScoreRows:
    """Each process takes its share, and all tell each other."""
    share = share_of(scoring.accelerator)
    pieces = [scores for _, scores in _scored(network, views, share.of(wanted), scoring)]
    parts: list[Tensor] = gather_object([torch.cat(pieces) if pieces else torch.empty(0)])
    found = torch.empty(room.images, room.prototypes)
    for process, part in enumerate(parts):
        if len(part):  # of few images a process may have none
            found[process :: share.processes] = part
    return ScoreRows.of(found)


def _on_disk(
    network: DProtoNet, views: ViewSource, wanted: Sequence[Key], scoring: Scoring, room: Room
) -> ScoreRows:
    """The processes of a machine write one file together; each machine has its own."""
    share = local_share(scoring.accelerator)
    first_here = share.process == 0
    path = of_local_main(scoring.accelerator, room.named if first_here else None)
    assert path is not None
    rows = ScoreRows.opened(path, room)
    meet(scoring.accelerator)
    if first_here:
        nameless(path)
    of_local_main(scoring.accelerator, (lambda: rows.reserve(room)) if first_here else None)
    for first, scores in _scored(network, views, wanted, scoring, share):
        rows.put(first, scores)
    meet(scoring.accelerator)
    return rows


def _scored(
    network: DProtoNet,
    views: ViewSource,
    keys: Sequence[Key],
    scoring: Scoring,
    share: ProcessShare | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Number of the first view and scores of each batch of the keys, or of a share of the batches."""
    batches = chunks(keys, scoring.batch)
    mine = (share or ProcessShare()).of(range(0, len(keys), scoring.batch))
    loaded = load(views, (share or ProcessShare()).of(batches), workers=scoring.workers)
    for first, view in zip(mine, loaded, strict=True):
        with scoring.accelerator.autocast():
            scores = network.evidence(view.inputs.to(scoring.accelerator.device)).scores
        yield first, scores.float().cpu()
