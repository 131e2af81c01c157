"""The plainest classifier of frozen features: Fisher's discriminant of their global averages, in closed form.

All classes share one covariance and are as likely beforehand, so that the answer is the nearest class mean
after whitening. Only the shrinkage of the covariance is chosen, on validation data.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from dprotonet.network import BlackBox
from dprotonet.training.discriminant import every_view, fisher_discriminant
from dprotonet.training.evaluation import Predictions
from dprotonet.training.features import FeatureViews
from dprotonet.training.moments import ClassMoments
from dprotonet.training.probe import Pooled, predictions_of
from dprotonet.training.views import ViewSource, chunks, load

_SHRINKAGES = (0.3, 0.5, 0.7)


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
        return predictions_of(Pooled(views, augmented=False), self.logits)


def fit_discriminant(train: FeatureViews, val: FeatureViews, *, classes: int) -> PooledDiscriminant:
    """From the images and their augmentations; of equally good shrinkages the smallest is kept."""
    pooled = Pooled(train, augmented=True, held=0)  # read once
    moments = ClassMoments(classes, pooled.width)
    for vectors, names in pooled:
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


_START = 0.5  # shrinkage of a head that will learn on
_JUDGES = 10_000  # images at most
_SCALES = tuple(2.0**-power for power in range(9))


@torch.no_grad()
def start_head_as_discriminant(
    network: BlackBox, views: ViewSource, *, batch: int = 60, device: torch.device
) -> None:
    """Set the head of a black box to the discriminant of the training views, as sure as it may be.

    The rule's own logits are far too sure of images that it has not seen: a first step would throw away what
    it knows to bring them down. So they are multiplied by the one number with which a rule from one half of
    the images has the smallest cross-entropy on the other half.
    """
    labels = torch.as_tensor(views.labels)
    half = _alternating(labels)
    judged = set(_judges(half))
    parts = [ClassMoments(network.head.out_features, network.head.in_features) for _ in range(2)]
    kept: list[tuple[Tensor, Tensor]] = []
    was_training = network.training
    network.eval()
    for view in load(views, chunks(every_view(views), batch), workers=0):
        pooled = network.encoder(view.inputs.to(device)).squeeze(1).float().cpu()
        names, index = torch.as_tensor(view.label), torch.as_tensor(view.index)
        for part, mine in zip(parts, (half[index], ~half[index]), strict=True):
            part.update(pooled[mine], names[mine])
        rows = torch.tensor([number in judged for number in index.tolist()])
        kept.append((pooled[rows], names[rows]))
    network.train(was_training)
    rule = discriminant_rule(parts[0] + parts[1], shrinkage=_START)
    scale = _honest_scale(parts, *(torch.cat(part) for part in zip(*kept, strict=True)))
    network.head.weight.copy_(scale * rule.weight)
    network.head.bias.copy_(scale * rule.bias)


def _judges(half: Tensor) -> list[int]:
    """Images that the rule of the first half is judged by: the second half, or some of it, evenly spread."""
    others = (~half).nonzero().flatten()
    return others[:: max(1, -(-len(others) // _JUDGES))].tolist()


def _honest_scale(parts: list[ClassMoments], pooled: Tensor, labels: Tensor) -> float:
    """The scale of logits that suits images which the rule was not made from."""
    if any((part.count == 0).any() for part in parts):
        return _SCALES[-1]  # some class has a single image: nothing to measure by, so hardly sure
    logits = discriminant_rule(parts[0], shrinkage=_START).logits(pooled)
    return min(_SCALES, key=lambda scale: cross_entropy(scale * logits, labels).item())


def _alternating(labels: Tensor) -> Tensor:
    """Every other image of each class, bool (N,)."""
    half = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        half[(labels == label).nonzero().flatten()[::2]] = True
    return half
