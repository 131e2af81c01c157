"""The plainest classifier of frozen features: Fisher's discriminant of their global averages, in closed form.

All classes share one covariance and are as likely beforehand, so that the answer is the nearest class mean
after whitening. Only the shrinkage of the covariance is chosen, on validation data.
"""

from dataclasses import dataclass

from torch import Tensor

from dprotonet.training.discriminant import ClassMoments, fisher_discriminant
from dprotonet.training.evaluation import Predictions
from dprotonet.training.features import FeatureViews
from dprotonet.training.probe import pooled_features

_SHRINKAGES = (0.3, 0.5, 0.7)
_CHUNK = 4096  # vectors at a time: sums are in float64, which would double the memory of all


@dataclass(frozen=True)
class PooledDiscriminant:
    """A linear rule, weight (C, D) and bias (C,), with the shrinkage that it was made by."""

    weight: Tensor
    bias: Tensor
    strength: float
    val_accuracy: float = 0.0

    def logits(self, vectors: Tensor) -> Tensor:
        """Log probabilities of the classes (N, C) but for a number that all of an image share."""
        return (vectors.double() @ self.weight.T + self.bias).float()

    def predictions(self, views: FeatureViews) -> Predictions:
        pooled, labels = pooled_features(views, augmented=False)
        return Predictions(self.logits(pooled), labels)


def fit_discriminant(train: FeatureViews, val: FeatureViews, *, classes: int) -> PooledDiscriminant:
    """From the images and their augmentations; of equally good shrinkages the smallest is kept."""
    pooled, labels = pooled_features(train, augmented=True)
    moments = ClassMoments(classes, pooled.shape[1])
    for vectors, names in zip(pooled.split(_CHUNK), labels.split(_CHUNK), strict=True):
        moments.update(vectors, names)
    rules = [discriminant_rule(moments, shrinkage=shrinkage) for shrinkage in _SHRINKAGES]
    judged = [
        PooledDiscriminant(rule.weight, rule.bias, rule.strength, rule.predictions(val).accuracy)
        for rule in rules
    ]
    return max(judged, key=lambda rule: rule.val_accuracy)


def discriminant_rule(moments: ClassMoments, *, shrinkage: float) -> PooledDiscriminant:
    """The discriminant rule of equally likely classes, each of which has some vectors.

    Twice a logit is minus the squared distance to the class mean after whitening, without |x|², which is the
    same for all classes: only then is the rule linear.
    """
    found = fisher_discriminant(moments, count=len(moments.count), shrinkage=shrinkage)
    centre, directions = found.centre.double(), found.directions.double()
    means = (moments.means() - centre) @ directions.T  # (C, K)
    weight = means @ directions
    return PooledDiscriminant(weight, -means.square().sum(1) / 2 - weight @ centre, shrinkage)
