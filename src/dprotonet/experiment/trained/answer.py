"""What a network found in one image, kept so that many questions cost one look.

The scores of all prototypes answer "why this class", "why not that one" and "what if this prototype were
switched off": each is a product of a few numbers. A black box has logits only.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.image_like import ImageLike
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.network import BlackBox


@dataclass(frozen=True, eq=False)
class Answer:
    """Scores and regions (P,) of all prototypes and the logits (C,) of one image, in float64."""

    model: TrainedModel
    scores: Tensor
    region: Tensor
    plain: Tensor
    places: Sequence[Place] | None = None  # of all regions in the image, where they have some
    distance: float | None = None  # from what the run knows, where it can tell

    @property
    def familiar(self) -> bool | None:
        """False: nothing here looks like what the run knows."""
        return None if self.distance is None else self.distance <= 1

    def logits(self, off: Collection[int] = ()) -> Tensor:
        """The logits (C,) with those prototypes switched off."""
        if not len(self.scores):
            return self.plain
        return self._kept(off) @ self._weight.T

    def probabilities(self, off: Collection[int] = ()) -> Tensor:
        return self.logits(off).softmax(dim=0)

    def label(self, off: Collection[int] = ()) -> int:
        """The likeliest class."""
        return int(self.logits(off).argmax())

    def evidence(self, label: int, off: Collection[int] = ()) -> tuple[EvidenceItem, ...]:
        """What every prototype says for a class, the largest contribution first; those off say nothing."""
        return self.model.evidence(label, self._kept(off).tolist(), self.region.tolist(), self.places)

    @property
    def _weight(self) -> Tensor:
        return self.model.network.head.weight.detach().cpu().double()

    def _kept(self, off: Collection[int]) -> Tensor:
        kept = self.scores.clone()
        kept[list(off)] = 0.0
        return kept


@torch.no_grad()
def answer(model: TrainedModel, image: ImageLike) -> Answer:
    """One look at an image."""
    inputs = model.inputs([image])
    if isinstance(model.network, BlackBox):
        nothing = torch.zeros(0, dtype=torch.float64)
        return Answer(model, nothing, nothing.long(), model.network(inputs)[0].cpu().double())
    found, (places,) = model.looked(inputs)
    scores, region, logits = found.scores[0].cpu(), found.region[0].cpu(), found.logits[0].cpu()
    known = model.familiarity
    distance = None if known is None else float(known.distance(found.distances)[0])
    return Answer(model, scores.double(), region, logits.double(), places, distance)
