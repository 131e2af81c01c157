"""Is one explainer better than another, or only luckier? A paired bootstrap over images.

Both are judged on the same images, so what is resampled are the differences: easy images help both alike.
Works on any value per image, from `faithfulness` or `localization`; a pair with a NaN says nothing and is
left out. With few images the interval is too narrow: below some twenty take it as a hint.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_BLOCK_ELEMENTS = 4_000_000  # indices drawn at a time: about 32 MB


class PairedComparison(NamedTuple):
    """Mean of ours minus theirs, its 95 % percentile interval, and the two-sided p of no difference."""

    difference: float
    low: float
    high: float
    p: float


class Interval(NamedTuple):
    """A mean over images and its 95 % percentile interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: Tensor, *, resamples: int = 2_000, seed: int = 0) -> Interval:
    """The mean of values (N,), NaN left out; fewer than two leave the interval NaN, none also the mean."""
    known = values.detach()[~values.isnan()].cpu().double()
    if len(known) < 2:
        return Interval(known.mean().item(), torch.nan, torch.nan)
    low, high = _percentiles(_resampled_means(known, resamples, seed))
    return Interval(known.mean().item(), low, high)


def statistic_interval(
    statistic: Callable[[Tensor], float], groups: Tensor, *, resamples: int = 500, seed: int = 0
) -> Interval:
    """A statistic of images, which takes their numbers (n,), and its 95 % percentile interval.

    For what is no mean over images. They are resampled within their groups (N,), classes for example, so
    that none is ever lost; fewer than two images leave the interval NaN. What is NaN is left out.
    """
    whole = statistic(torch.arange(len(groups)))
    if len(groups) < 2 or whole != whole:
        return Interval(whole, torch.nan, torch.nan)
    generator = torch.Generator().manual_seed(seed)
    members = [(groups == group).nonzero().flatten() for group in groups.unique()]
    drawn = [
        statistic(
            torch.cat([own[torch.randint(len(own), (len(own),), generator=generator)] for own in members])
        )
        for _ in range(resamples)
    ]
    values = torch.tensor(drawn, dtype=torch.double)
    low, high = _percentiles(values[~values.isnan()])
    return Interval(whole, low, high)


def paired_bootstrap(
    ours: Tensor, theirs: Tensor, *, resamples: int = 10_000, seed: int = 0
) -> PairedComparison:
    """Compare values (N,) of two explainers on the same images.

    p is twice the share of resampled means on the rarer side of zero, the sample itself counted as one of
    them, so it is never 0. Fewer than two pairs leave interval and p NaN, none also the difference.
    """
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; it must be positive")
    differences = _differences(ours, theirs)
    mean = differences.mean().item()
    if len(differences) < 2:
        return PairedComparison(mean, torch.nan, torch.nan, torch.nan)
    means = _resampled_means(differences, resamples, seed)
    low, high = _percentiles(means)
    return PairedComparison(mean, low, high, _two_sided(means))


def _differences(ours: Tensor, theirs: Tensor) -> Tensor:
    if ours.ndim != 1 or ours.shape != theirs.shape:
        shapes = f"{tuple(ours.shape)} and {tuple(theirs.shape)}"
        raise ValueError(f"values of the two sides have shapes {shapes}; both must be (N,), image by image")
    known = ~(ours.isnan() | theirs.isnan())
    return ours.detach()[known].cpu().double() - theirs.detach()[known].cpu().double()


def _resampled_means(differences: Tensor, resamples: int, seed: int) -> Tensor:
    """Means of as many differences drawn with replacement (resamples,), a block at a time."""
    count, generator = len(differences), torch.Generator().manual_seed(seed)
    blocks = torch.arange(resamples).split(max(1, _BLOCK_ELEMENTS // count))
    draws = (torch.randint(count, (len(block), count), generator=generator) for block in blocks)
    return torch.cat([differences[drawn].mean(dim=1) for drawn in draws])


def _percentiles(means: Tensor) -> tuple[float, float]:
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()
    return low, high


def _two_sided(means: Tensor) -> float:
    rarer = min((means <= 0).sum().item(), (means >= 0).sum().item())
    return min(1.0, 2 * (rarer + 1) / (len(means) + 1))
