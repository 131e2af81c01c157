"""The training image of a class that an image is most like, to the prototypes of the network.

Two images are alike if all prototypes find as much of themselves in the one as in the other: the nearest is
that with the least squared difference of scores, over the prototypes of all classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.experiment.prototypes.split_evidence import check_split, split_evidence
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.progress import Progress


@dataclass(frozen=True, eq=False)
class TrainingScores:
    """Scores (N, P) of all training images and their labels (N,), float64 on the CPU."""

    scores: Tensor
    labels: Tensor

    @classmethod
    def of(
        cls, model: TrainedModel, train: ImageData, *, on_progress: Progress | None = None
    ) -> "TrainingScores":
        """One pass over the images."""
        check_split(model, train)
        found = list(split_evidence(model, train, on_progress))
        scores = torch.cat([evidence.scores.cpu().double() for evidence, _ in found])
        return cls(scores, torch.cat([labels.cpu() for _, labels in found]))

    def nearest(self, scores: Tensor, label: int) -> int | None:
        """The number of the class's nearest image to one with `scores` (P,); None where it has none."""
        if not bool((self.labels == label).any()):
            return None
        apart = (self.scores - scores.cpu().double()).square().sum(dim=1)
        return int(apart.masked_fill(self.labels != label, torch.inf).argmin())
