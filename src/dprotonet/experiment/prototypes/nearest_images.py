"""The training image of a class that an image is most like, to the prototypes of the network.

Two images are alike if all prototypes find as much of themselves in the one as in the other: the nearest is
that with the least squared difference of scores, over the prototypes of all classes.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.experiment.prototypes.split_evidence import LabelledEvidence, scores_room, split_scores
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.progress import Progress
from dprotonet.training.score_rows import ScoreRows


@dataclass(frozen=True, eq=False)
class TrainingScores:
    """Scores (N, P) of all training images and their labels (N,), on the CPU or on disk."""

    scores: ScoreRows
    labels: Tensor

    @classmethod
    def of(
        cls, model: TrainedModel, train: ImageData, *, on_progress: Progress | None = None
    ) -> "TrainingScores":
        """One pass over the images."""
        found = split_scores(model, train, on_progress)
        return cls(found.scores, found.labels)

    def nearest(self, scores: Tensor, label: int) -> int | None:
        """The number of the class's nearest image to one with `scores` (P,); None where it has none."""
        own, asked = (self.labels == label).nonzero().flatten(), scores.cpu().double()
        if not len(own):
            return None
        apart = [(some.double() - asked).square().sum(dim=1) for _, some in self.scores.blocks(own)]
        return int(own[torch.cat(apart).argmin()])


@dataclass
class CollectedScores:
    """The same, from batches in order that somebody goes over for another reason."""

    model: TrainedModel
    images: int
    rows: ScoreRows | None = None
    labels: list[Tensor] = field(default_factory=list)

    def add(self, batch: LabelledEvidence) -> None:
        if self.rows is None:
            self.rows = ScoreRows.empty(scores_room(self.model, self.images))
        self.rows.put(sum(map(len, self.labels)), batch.evidence.scores)
        self.labels.append(batch.labels.cpu())

    def whole(self) -> TrainingScores | None:
        """All of them, if all were seen."""
        if self.rows is None or sum(map(len, self.labels)) != self.images:
            return None
        return TrainingScores(self.rows, torch.cat(self.labels))
