"""What a network says of one image, and why: the class, its probability, and what every prototype says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dprotonet.experiment.runs.calibration import Calibration, set_source, shares_of
from dprotonet.experiment.runs.familiarity import is_familiar, warning_of
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.figures.prediction_html import PointsRow, prediction_html

_LIKELY = 3  # classes named in a notebook


@dataclass(frozen=True)
class Prediction:
    """What the network says of one image, and why. The contributions of all evidence sum to `logit`.

    A black box gives no evidence.
    """

    name: str
    class_name: str
    label: int
    probability: float
    probabilities: Mapping[str, float]
    logit: float
    evidence: tuple[EvidenceItem, ...]  # of every prototype, what decides most first
    familiar: bool | None = None  # False: unlike the training images; None: nobody measured it
    distance: float | None = None  # from what the run knows; above 1 an image is not familiar
    calibrated: bool = False  # whether probabilities were fitted to images that were not learned from
    coverage: float | None = None  # asked for: with this share the truth is in `class_set`
    class_set: tuple[str, ...] | None = None  # the likeliest first; None where no coverage was asked for

    def _repr_html_(self) -> str:
        """As a notebook shows it: the class, and the points that make its logit."""
        return prediction_html(
            self.class_name,
            caption=Path(self.name).name,
            probabilities=sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:_LIKELY],
            rows=[
                PointsRow(
                    f"{item.class_name} #{item.prototype}{item.part and f', {item.part}'}",
                    item.source,
                    item.similarity,
                    item.weight,
                    item.contribution,
                )
                for item in self.evidence
            ],
            logit=self.logit,
            warning=warning_of(self.distance),
        )


def prediction_of(
    name: str,
    logits: Tensor,
    evidence: tuple[EvidenceItem, ...],
    *,
    classes: Sequence[str],
    distance: float | None = None,
    calibration: Calibration | None = None,
    coverage: float | None = None,
    stated: Tensor | None = None,
) -> Prediction:
    """The prediction of the image `name` from its logits (C,) and what every prototype says for its class.

    Probabilities are those `stated` (C,), or else the softmax of the logits, calibrated where that is known.
    """
    label = int(logits.argmax())
    probabilities = shares_of(logits, calibration) if stated is None else stated
    within = None
    if coverage is not None:
        within = set_source(calibration, coverage).class_set(probabilities, coverage)
    said = math.fsum(item.contribution for item in evidence)
    return Prediction(
        name=name,
        class_name=classes[label],
        label=label,
        probability=float(probabilities[label]),
        probabilities=dict(zip(classes, probabilities.tolist(), strict=True)),
        logit=said if evidence else float(logits[label]),
        evidence=evidence,
        familiar=is_familiar(distance),
        distance=distance,
        calibrated=calibration is not None,
        coverage=coverage,
        class_set=None if within is None else tuple(classes[number] for number in within),
    )
