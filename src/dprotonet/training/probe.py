"""The linear probe: logistic regression on globally averaged frozen features, the bar for a frozen DProtoNet.

Its strength of regularisation is chosen on validation data, like everything else.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dprotonet.training.evaluation import Predictions
from dprotonet.training.features import FeatureViews
from dprotonet.training.views import label_tensor

_BLOCK = 1024  # images
_STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class LinearProbe:
    """Weights of the chosen regression, with the standardisation of its training features."""

    layer: nn.Linear
    mean: Tensor
    std: Tensor
    strength: float
    val_accuracy: float

    @torch.no_grad()
    def predictions(self, views: FeatureViews) -> Predictions:
        pooled, labels = pooled_features(views, augmented=False)
        return Predictions(self.layer((pooled - self.mean) / self.std), labels)


def fit_probe(train: FeatureViews, val: FeatureViews, *, classes: int) -> LinearProbe:
    """Fit on the images and their augmentations for each strength; keep the one best on validation data."""
    pooled, labels = pooled_features(train, augmented=True)
    mean, std = pooled.mean(0), pooled.std().clamp_min(1e-12)
    best: LinearProbe | None = None
    for strength in _STRENGTHS:
        layer = _fitted((pooled - mean) / std, labels, classes, strength)
        probe = LinearProbe(layer, mean, std, strength, 0.0)
        accuracy = probe.predictions(val).accuracy
        if best is None or accuracy > best.val_accuracy:
            best = LinearProbe(layer, mean, std, strength, accuracy)
    assert best is not None
    return best


def _fitted(features: Tensor, labels: Tensor, classes: int, strength: float) -> nn.Linear:
    layer = nn.Linear(features.shape[1], classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(layer(features), labels) + strength * layer.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return layer


def pooled_features(views: FeatureViews, *, augmented: bool) -> tuple[Tensor, Tensor]:
    """Globally averaged features (N, D) and labels (N,): of the plain images, or of all variants."""
    pooled, labels = zip(*pooled_blocks(views, augmented=augmented), strict=True)
    return torch.cat(pooled), torch.cat(labels)


def pooled_blocks(views: FeatureViews, *, augmented: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """The same, some images at a time."""
    variants = views.features.shape[1] if augmented else 1
    for first in range(0, len(views), _BLOCK):
        images = range(first, min(first + _BLOCK, len(views)))
        rows = [views.features[index, :variants].mean(axis=(-2, -1), dtype="float32") for index in images]
        labels = label_tensor([views.labels[index] for index in images])
        yield torch.from_numpy(np.concatenate(rows)), labels.repeat_interleave(variants, dim=0)
