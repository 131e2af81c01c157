"""How strange an image is, and from when on that deserves a warning.

Pure functions of distances, to prototypes or of other kinds; several are counted together. An image unlike
all training images still gets a class; the distance to its nearest prototype tells. The threshold is a
conformal quantile: of images like those it was taken from, the stated share lies above it, whatever the
distances are distributed like.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.errors import UserError


def strangeness(distances: Tensor) -> Tensor:
    """How far the nearest prototype is, (B,), from the squared distances (B, P) of Eq. (1)."""
    return distances.amin(dim=1).sqrt()


def class_strangeness(distances: Tensor, prototype_class: Tensor) -> Tensor:
    """How far the prototypes of the nearest class are on average, (B,): the root of the mean of (B, P).

    Where prototypes are parts, one of them is soon met by chance; a whole class's are not.
    """
    classes = int(prototype_class.max()) + 1
    count = torch.bincount(prototype_class, minlength=classes)
    total = distances.new_zeros(len(distances), classes).index_add(1, prototype_class, distances)
    return (total / count).nan_to_num(nan=torch.inf).amin(dim=1).sqrt()  # a class without any is no match


def rank_of(images: int, share: float) -> int:
    """Which of the sorted values of `images` known images is the threshold, from 1.

    The + 1 is the new image, which might take any place among them. With too few images for so small a share
    it is the largest: then one new image in images + 1 lies above.
    """
    return min(images, math.ceil((1 - share) * (images + 1) - 1e-9))  # 1e-9: of rounding


def conformal_threshold(values: Tensor, share: float = 0.05) -> float:
    """What at most `share` of new images of the same kind exceed, from the values (N,) of N known ones."""
    if not 0 < share < 1:
        raise UserError(f"a share of images to warn of lies between 0 and 1, not {share}")
    if len(values) == 0 or not bool(torch.isfinite(values).all()):
        raise ValueError("a threshold needs finite values, at least one")
    return float(values.double().sort().values[rank_of(len(values), share) - 1])


class Usual(NamedTuple):
    """Mean and deviation (L,) of the logarithms of L kinds of distances of known images."""

    mean: Tensor
    deviation: Tensor

    def standard(self, distances: Tensor) -> Tensor:
        """Distances (N, L) in deviations from what is usual: kinds of distances that can be compared."""
        return (_logs(distances) - self.mean) / self.deviation

    def at(self, beyond: float) -> Tensor:
        """The distances (L,) that lie so many deviations beyond the mean."""
        return (self.mean + beyond * self.deviation).exp()


def log_usual(distances: Tensor) -> Usual:
    """Of the distances (N, L) of known images; they are skewed, their logarithms hardly."""
    logs = _logs(distances)
    return Usual(logs.mean(dim=0), logs.std(dim=0, correction=0).clamp_min(1e-6))


def _logs(distances: Tensor) -> Tensor:
    return distances.double().clamp_min(1e-6).log()


class Joined(NamedTuple):
    """Two distances as one: the weighted geometric mean of both, each divided by its limit; 1 is the limit.

    What raises both a little shows in it, though neither is beyond its own limit. One that is usual hides no
    more than half of the other, in deviations from what is usual.
    """

    weight: float  # of the first, from 0 to 1: the less it varies the more
    limit: float  # of the mean; below 1, as both are seldom large at once

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        mean: Tensor = first.double() ** self.weight * second.double() ** (1 - self.weight)
        return mean / self.limit


class JoinedLimits(NamedTuple):
    """Limits of distances of which two are joined, so that `share` of known images exceed any of them."""

    first: float
    levels: Tensor  # (L,), the last of which is joined with the first
    joined: Joined


def joined_limits(first: Tensor, levels: Tensor, share: float) -> JoinedLimits:
    """From the distances (N,) and (N, L) of known images that nothing was fitted to.

    The first counts for itself and joined with the last level, which counts only so. All are compared in
    deviations from what is usual, and all have one limit there, so no kind of distance uses up a share of the
    warnings that another could give.
    """
    first = first.unsqueeze(1)
    usual, alone = log_usual(levels), log_usual(first)
    own, others = alone.standard(first), usual.standard(levels)
    both = (own[:, 0] + others[:, -1]) / 2
    together = max(float(both.std(correction=0)), 1e-6)
    compared = torch.cat([others[:, :-1], (both / together).unsqueeze(1), own], dim=1)
    beyond = conformal_threshold(compared.amax(dim=1), share)
    steep, other = 1 / float(alone.deviation), 1 / float(usual.deviation[-1])
    lower = math.exp(2 * beyond * (together - 1) / (steep + other))
    return JoinedLimits(float(alone.at(beyond)), usual.at(beyond), Joined(steep / (steep + other), lower))
