"""Where the features of known images lie, and how far outside of that others are.

For each level of a backbone a Gaussian with Ledoit and Wolf's shrunken covariance, of which the main
directions are kept: the Mahalanobis distance. Averages over an image at several levels know noise, blur and
pictures of another kind, of which the few directions that tell classes apart know nothing. They are brought
to length one first: how strongly a map answers says little of what is seen, but differs much between images
(Mueller and Hein 2025, Mahalanobis++: improving OOD detection via feature normalization).
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from dprotonet.inference.familiarity import conformal_threshold, log_usual

KEPT = 64  # directions of a level with a variance of their own; the others share one
FOLDS, MOST_FOLDS, FITTED = 5, 20, 2000  # at least, at most, and images fitted to in all folds together
_SILENT = 1e-3  # of the level's typical deviation: that of a channel which is silent on all known images


class LevelSpread(nn.Module):
    """Features (B, D) of one level to Mahalanobis distances (B,)."""

    mean: Tensor
    deviation: Tensor
    directions: Tensor
    variances: Tensor
    rest: Tensor

    def __init__(self, dimension: int, kept: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dimension))
        self.register_buffer("deviation", torch.ones(dimension))  # of each feature; then they are alike
        self.register_buffer("directions", torch.zeros(kept, dimension))  # orthonormal
        self.register_buffer("variances", torch.ones(kept))  # along them
        self.register_buffer("rest", torch.ones(()))  # along all others

    def forward(self, features: Tensor) -> Tensor:
        alike = (features - self.mean) / self.deviation
        along = alike @ self.directions.T
        beside = (alike.square().sum(dim=1) - along.square().sum(dim=1)).clamp_min(0)
        return ((along.square() / self.variances).sum(dim=1) + beside / self.rest).sqrt()

    @classmethod
    def fit(cls, features: Tensor) -> Self:
        """The Gaussian of known features (N, D)."""
        features = features.double()
        count, dimension = features.shape
        mean, variance = features.mean(dim=0), features.var(dim=0, correction=0)
        deviation = (variance + _SILENT**2 * variance.mean()).sqrt().clamp_min(1e-6)
        alike = (features - mean) / deviation
        kept = min(KEPT, dimension, count)
        values, directions = _principal(alike, kept)
        shrinkage, average = shrinkage_of(alike)
        left = (alike.square().sum() / count - values.sum()).clamp_min(0) / max(dimension - kept, 1)
        made = cls(dimension, kept)
        made.mean, made.deviation, made.directions = mean.float(), deviation.float(), directions.float()
        made.variances = ((1 - shrinkage) * values + shrinkage * average).clamp_min(1e-6).float()
        made.rest = ((1 - shrinkage) * left + shrinkage * average).clamp_min(1e-6).float()
        return made


def shrinkage_of(centred: Tensor) -> tuple[Tensor, Tensor]:
    """How far the covariance of centred rows (N, D) is best moved towards what multiple of the unit matrix.

    Ledoit and Wolf (2004), A well-conditioned estimator for large-dimensional covariance matrices.
    """
    count, dimension = centred.shape
    lengths = centred.square().sum(dim=1)
    average = lengths.mean() / dimension
    small = centred @ centred.T if count < dimension else centred.T @ centred
    squares = small.square().sum() / count**2  # of all entries of the covariance
    apart = squares - dimension * average.square()  # from the multiple of the unit matrix
    error = (lengths.square().mean() - squares) / count  # of the covariance itself
    if apart <= 0:
        return torch.ones_like(average), average
    return (error / apart).clamp(0, 1), average


def _principal(centred: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Variances (K,) and directions (K, D) of the main components of centred rows (N, D)."""
    count, dimension = centred.shape
    if count >= dimension:
        values, vectors = torch.linalg.eigh(centred.T @ centred / count)
        return values.flip(0)[:kept].clamp_min(0), vectors.T.flip(0)[:kept]
    values, vectors = torch.linalg.eigh(centred @ centred.T / count)
    values, vectors = values.flip(0)[:kept].clamp_min(0), vectors.flip(1)[:, :kept]
    found = vectors.T @ centred
    lengths = found.norm(dim=1, keepdim=True)
    there = lengths > 1e-6 * lengths.max()  # N centred rows have N - 1 directions; of rounding none is made
    return values * there.squeeze(1), torch.where(there, found / lengths.clamp_min(1e-30), 0.0)


class FeatureSpread(nn.Module):
    """Averages (B, ΣC) of all levels to how far images are in each (B, L); `limits` are what is usual.

    With `unit` the averages of a level are brought to length one; earlier versions took them as they are.
    """

    limits: Tensor

    def __init__(
        self, levels: Sequence[LevelSpread], limits: Tensor | None = None, *, unit: bool = True
    ) -> None:
        super().__init__()
        self.levels = nn.ModuleList(levels)
        self.widths = [len(level.mean) for level in levels]
        self.unit = unit
        self.register_buffer("limits", torch.ones(len(levels)) if limits is None else limits.float())

    def forward(self, averages: Tensor) -> Tensor:
        """How strange images are (B,): 1 is the limit."""
        return (self.distances(averages) / self.limits).amax(dim=1)

    def distances(self, averages: Tensor) -> Tensor:
        """Of every level (B, L)."""
        parts = _by_level(averages, self.widths, unit=self.unit)
        return torch.stack([level(part) for level, part in zip(self.levels, parts, strict=True)], dim=1)

    @classmethod
    def fit(cls, known: Tensor, widths: Sequence[int]) -> Self:
        """From the averages (N, ΣC) of known images; its limits are still to be set."""
        return cls([LevelSpread.fit(part) for part in _by_level(known, widths, unit=True)])

    @classmethod
    def empty(cls, kept: Sequence[tuple[int, int]], *, unit: bool = True) -> Self:
        """To be filled from a file: directions and width of every level."""
        return cls([LevelSpread(width, count) for count, width in kept], unit=unit)

    def limited(self, distances: Tensor, share: float) -> "FeatureSpread":
        """The same with limits that `share` of known images exceed, by the distances (N, L) of some."""
        usual = log_usual(distances)
        beyond = conformal_threshold(usual.standard(distances).amax(dim=1), share)
        return self.with_limits(usual.at(beyond))

    def with_limits(self, limits: Tensor) -> "FeatureSpread":
        return FeatureSpread(list(self.levels), limits, unit=self.unit)  # type: ignore[arg-type]


def _by_level(averages: Tensor, widths: Sequence[int], *, unit: bool) -> list[Tensor]:
    parts = averages.split(list(widths), dim=1)
    return [torch.nn.functional.normalize(part, dim=1) if unit else part for part in parts]


def cross_fitted(known: Tensor, widths: Sequence[int]) -> Tensor:
    """Distances (N, L) of known images, each from a Gaussian that it had no part in.

    To the one it belongs to an image is too near, the more so the fewer images there are. Of few images few
    are left out at a time: a Gaussian of fewer is farther from everything.
    """
    folds = min(len(known), MOST_FOLDS, max(FOLDS, FITTED // max(len(known), 1)))
    fold = torch.arange(len(known)) % folds
    found = torch.empty(len(known), len(widths))
    for number in range(folds):
        out = fold == number
        found[out] = FeatureSpread.fit(known[~out], widths).distances(known[out].float())
    return found
