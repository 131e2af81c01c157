"""The linear probe: logistic regression on globally averaged frozen features, the bar for a frozen DProtoNet.

Its strength of regularisation is chosen on validation data, like everything else. Features are looked at some
images at a time, as often as the regression asks: those of ImageNet with four augmentations take 33 GB.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dprotonet.training.evaluation import Predictions
from dprotonet.training.features import FeatureViews, Rows
from dprotonet.training.views import label_tensor

_BLOCK = 1024  # images
_HELD = 2**29  # bytes of averages that stay in memory; if there are more, they are read anew each time
_STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


class Block(NamedTuple):
    """Averages (B, D) of some views, and their labels (B,), or rows of labels (B, C)."""

    vectors: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Scaling:
    """Every channel about its mean (D,), all of them by one deviation."""

    mean: Tensor
    std: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        return (vectors - self.mean) / self.std


@dataclass
class Pooled:
    """Globally averaged features of plain images, or of all variants, in blocks: `for block in pooled`.

    Where all take no more than `held` bytes they are read once.
    """

    views: FeatureViews
    augmented: bool
    scaling: Scaling | None = None
    held: int = _HELD
    _kept: list[Block] = field(default_factory=list, init=False)

    def __iter__(self) -> Iterator[Block]:
        if not self._kept and self.count * self.width * 4 <= self.held:
            self._kept = list(self._read())
        return iter(self._kept) if self._kept else self._read()

    @property
    def width(self) -> int:
        """Channels."""
        return int(self._source.shape[2])

    @property
    def count(self) -> int:
        """Views."""
        return len(self.views) * self._variants

    def scaled(self) -> "Pooled":
        """The same with every channel's mean 0 and one deviation of 1 for all."""
        return Pooled(self.views, self.augmented, self._scaling(), self.held)

    def _scaling(self) -> Scaling:
        mean = torch.zeros(self.width, dtype=torch.float64)
        for block in self:
            mean += block.vectors.double().sum(0) / self.count
        far = sum(float((block.vectors.double() - mean.mean()).square().sum()) for block in self)
        std = (far / max(1, self.count * self.width - 1)) ** 0.5
        return Scaling(mean.float(), torch.tensor(std).clamp_min(1e-12))

    @property
    def _variants(self) -> int:
        return int(self._source.shape[1]) if self.augmented else 1

    @property
    def _source(self) -> np.ndarray | Rows:
        """Averages (N, V, D) that were kept, or maps (N, V, D, h, w)."""
        return self.views.beside.get("pooled", self.views.features)

    def _read(self) -> Iterator[Block]:
        for first in range(0, len(self.views), _BLOCK):
            images = range(first, min(first + _BLOCK, len(self.views)))
            found = torch.from_numpy(np.concatenate([self._of(index) for index in images]))
            labels = label_tensor([self.views.labels[index] for index in images])
            vectors = found if self.scaling is None else self.scaling(found)
            yield Block(vectors, labels.repeat_interleave(self._variants, dim=0))

    def _of(self, index: int) -> np.ndarray:
        """Of the variants of an image (V, D)."""
        rows: np.ndarray = self._source[index, : self._variants]
        places = tuple(range(2, rows.ndim))
        return rows.mean(axis=places, dtype=np.float32) if places else rows.astype(np.float32)


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
        scaling = Scaling(self.mean, self.std)
        return predictions_of(Pooled(views, augmented=False), lambda vectors: self.layer(scaling(vectors)))


def fit_probe(train: FeatureViews, val: FeatureViews, *, classes: int) -> LinearProbe:
    """Fit on the images and their augmentations for each strength; keep the one best on validation data."""
    features = Pooled(train, augmented=True).scaled()
    scaling = features.scaling
    assert scaling is not None
    best: LinearProbe | None = None
    for strength in _STRENGTHS:
        layer = _fitted(features, classes, strength)
        probe = LinearProbe(layer, scaling.mean, scaling.std, strength, 0.0)
        accuracy = probe.predictions(val).accuracy
        if best is None or accuracy > best.val_accuracy:
            best = LinearProbe(layer, scaling.mean, scaling.std, strength, accuracy)
    assert best is not None
    return best


def _fitted(features: Pooled, classes: int, strength: float) -> nn.Linear:
    layer = nn.Linear(features.width, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = strength * layer.weight.square().sum()
        total.backward()
        total = total.detach()
        for vectors, labels in features:
            loss = cross_entropy(layer(vectors), labels, reduction="sum") / features.count
            loss.backward()
            total += loss.detach()
        return total

    optimizer.step(closure)
    return layer


def predictions_of(pooled: Pooled, rule: Callable[[Tensor], Tensor]) -> Predictions:
    """What a rule says of averages (B, D) as logits (B, C), block by block."""
    found = [(rule(vectors), labels) for vectors, labels in pooled]
    logits, labels = (torch.cat(part) for part in zip(*found, strict=True))
    return Predictions(logits, labels)


def pooled_features(views: FeatureViews, *, augmented: bool) -> tuple[Tensor, Tensor]:
    """All averages (N, D) and their labels, where there is room for them."""
    vectors, labels = zip(*Pooled(views, augmented, held=0), strict=True)
    return torch.cat(vectors), torch.cat(labels)
