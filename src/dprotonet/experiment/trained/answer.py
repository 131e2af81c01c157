"""What a network found in one image, kept so that many questions cost one look.

The scores of all prototypes answer "why this class", "why not that one" and "what if this prototype were
switched off": each is a product of a few numbers. A black box has logits only. Predictions, the report and
the web page all take their evidence from here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.runs.calibration import Calibration, shares_of
from dprotonet.experiment.runs.familiarity import is_familiar
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.trained.class_contrast import ClassContrast, class_contrast
from dprotonet.experiment.trained.evidence import (
    EvidenceItem,
    Origin,
    contrast_in,
    evidence_items,
    part_of_each,
)
from dprotonet.experiment.trained.part_names import PartName
from dprotonet.experiment.trained.prediction import Prediction, prediction_of
from dprotonet.inference.contrast import likeliest_other
from dprotonet.inference.several_labels import LabelHead
from dprotonet.network import BlackBox, Network


class Answering(Protocol):
    """The model that looked: `TrainedModel`, as far as an answer needs it."""

    @property
    def network(self) -> Network: ...
    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def prototypes(self) -> Sequence[Origin]: ...
    @property
    def part_names(self) -> Mapping[int, PartName]: ...
    @property
    def calibration(self) -> Calibration | None: ...


@dataclass(frozen=True, eq=False)
class Answer:
    """Scores and regions (P,) of all prototypes and the logits (C,) of one image, in float64."""

    model: Answering
    scores: Tensor
    region: Tensor
    plain: Tensor
    places: Sequence[Place] | None = None  # of all regions in the image, where they have some
    distance: float | None = None  # from what the run knows, where it can tell
    stated: Tensor | None = None  # probabilities (C,), where they are not the softmax of the logits

    @property
    def familiar(self) -> bool | None:
        """False: it is unlike the training images."""
        return is_familiar(self.distance)

    def logits(self, off: Collection[int] = ()) -> Tensor:
        """The logits (C,) with those prototypes switched off."""
        if not len(self.scores):
            return self.plain
        said = self._kept(off) @ self._weight.T
        head = self.model.network.head
        return said + head.bias.detach().cpu().double() if isinstance(head, LabelHead) else said

    def probabilities(self, off: Collection[int] = ()) -> Tensor:
        """Of all classes (C,), calibrated where the run is."""
        if self.stated is not None:
            return self.stated
        if isinstance(self.model.network.head, LabelHead):
            return self.logits(off).sigmoid()
        return shares_of(self.logits(off), self.model.calibration)

    def label(self, off: Collection[int] = ()) -> int:
        """The likeliest class: with all prototypes on, the predicted one."""
        return int((self.logits(off) if off else self.plain).argmax())

    def evidence(self, label: int, off: Collection[int] = ()) -> tuple[EvidenceItem, ...]:
        """What every prototype says for a class, what decides most first; those off say nothing."""
        if not len(self.scores):
            return ()
        model, scores, weights = self.model, self._kept(off), self._weight[label]
        columns = (scores, weights, scores * weights, self.region)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        parts = {number: name.words for number, name in model.part_names.items()}
        contrast = contrast_in(model.network, model.classes, scores.tolist(), label)
        return evidence_items(model.prototypes, rows, places=self.places, parts=parts, contrast=contrast)

    def contrast(self, label: int, versus: int, off: Collection[int] = ()) -> ClassContrast:
        """Why `label` and not `versus`: what each part or prototype adds to both logits."""
        if label == versus:
            raise UserError(f"{self.model.classes[label]} cannot be compared with itself; name another class")
        names, logits = (self.model.classes[label], self.model.classes[versus]), self.logits(off)
        network = self.model.network
        if not len(self.scores) or isinstance(network, BlackBox):
            return ClassContrast(*names, float(logits[label]), float(logits[versus]))
        scores = self._kept(off)
        said = torch.stack([self._weight[one] * scores for one in (label, versus)], dim=1).tolist()
        part = part_of_each(network)
        own, other = ({item.prototype: item for item in self.evidence(one, off)} for one in (label, versus))
        parts = None if part is None else part.tolist()
        return class_contrast(names, said, part=parts, items=(own, other))

    def runner_up(self, label: int, off: Collection[int] = ()) -> int:
        """The likeliest class but `label`."""
        return int(likeliest_other(self.logits(off)[None], torch.tensor([label])))

    def prediction(self, name: str, *, coverage: float | None = None) -> Prediction:
        """What it says of the image `name`; with `coverage` also the classes that the truth is among."""
        return self._prediction(name, self.evidence(self.label()), coverage)

    def prediction_without_evidence(self, name: str, *, coverage: float | None = None) -> Prediction:
        """The same for long tables: listing the evidence of every prototype takes longer than the rest."""
        return self._prediction(name, (), coverage)

    def _prediction(
        self, name: str, evidence: tuple[EvidenceItem, ...], coverage: float | None
    ) -> Prediction:
        return prediction_of(
            name,
            self.plain,
            evidence,
            classes=self.model.classes,
            distance=self.distance,
            calibration=self.model.calibration,
            coverage=coverage,
            stated=self.stated,
        )

    @property
    def _weight(self) -> Tensor:
        return self.model.network.head.weight.detach().cpu().double()

    def _kept(self, off: Collection[int]) -> Tensor:
        kept = self.scores.clone()
        kept[list(off)] = 0.0
        return kept
