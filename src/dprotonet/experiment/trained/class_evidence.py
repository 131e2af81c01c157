"""Evidence for any class, not only the predicted one: why this, and why not that.

Similarities and regions of an image are those of its prediction; only the weights are the other class's.
"""

import math
from dataclasses import dataclass, replace

from dprotonet.experiment.trained.evidence import Contrast, EvidenceItem, contrast_in, decisive_first
from dprotonet.experiment.trained.trained_model import Prediction, TrainedModel


@dataclass(frozen=True)
class ClassEvidence:
    """What every prototype says for one class, what decides most first; contributions sum to `logit`."""

    class_name: str
    label: int
    logit: float
    evidence: tuple[EvidenceItem, ...]


def class_evidence(model: TrainedModel, prediction: Prediction, label: int) -> ClassEvidence:
    """The evidence of a predicted image for the class `label`."""
    weights = model.prototyped.head.weight[label].detach().cpu().double().tolist()
    scores = [item.similarity for item in sorted(prediction.evidence, key=lambda item: item.prototype)]
    contrast = contrast_in(model.network, model.classes, scores, label)
    items = [_reweighted(item, weights[item.prototype], contrast) for item in prediction.evidence]
    logit = math.fsum(item.contribution for item in items)
    return ClassEvidence(model.classes[label], label, logit, decisive_first(items))


def _reweighted(item: EvidenceItem, weight: float, contrast: Contrast | None) -> EvidenceItem:
    plain = replace(item, weight=weight, contribution=item.similarity * weight, lead=None, rival="")
    return plain if contrast is None else replace(plain, **contrast.of(item.prototype))
