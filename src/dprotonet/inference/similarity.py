"""What "looks like" means: how a distance between region and prototype becomes a score."""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class Similarity(Protocol):
    """`space` maps regions to where squared L2 is measured, `ideal` prototypes; `scores` turns the smallest
    distance into g."""

    def space(self, vectors: Tensor) -> Tensor: ...
    def ideal(self, prototypes: Tensor) -> Tensor: ...
    def scores(self, distances: Tensor) -> Tensor: ...


class LogSimilarity(nn.Module):
    """g = log((s + 1) / (s + ε)), Eq. (2); falls with s, so the maximum over regions is at the smallest s."""

    def __init__(self, epsilon: float = 1e-12) -> None:
        super().__init__()
        self.epsilon = epsilon

    def space(self, vectors: Tensor) -> Tensor:
        return vectors

    def ideal(self, prototypes: Tensor) -> Tensor:
        return prototypes

    def scores(self, distances: Tensor) -> Tensor:
        # The same as log(s + 1) - log(s + ε), which cancels for the large distances of unbounded features.
        return torch.log1p((1 - self.epsilon) / (distances + self.epsilon))


class CosineSimilarity(nn.Module):
    """g = cos(z, p), by the identity ||z' - p'||² = 2 - 2 cos(z, p) of unit vectors.

    Unstated: the paper uses the logarithm only; later work found the cosine more robust (XProtoNet uses it).
    """

    def space(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, dim=-1)

    def ideal(self, prototypes: Tensor) -> Tensor:
        return normalize(prototypes, dim=-1)

    def scores(self, distances: Tensor) -> Tensor:
        return 1 - distances / 2


class PresentCosine(nn.Module):
    """g = |z| cos(z, p), the length |z| in [0, 1] of a region vector being how far its part is there at all.

    As a distance: z gets a further coordinate √(1 - |z|²), for what is missing, and so unit length; a
    prototype is a part that is wholly there. A part that is hidden then says little, for or against.
    """

    def space(self, vectors: Tensor) -> Tensor:
        length = vectors.norm(dim=-1, keepdim=True)
        whole = vectors / length.clamp_min(1)
        # Clamped above 0: at a length of 1 the slope of the root is infinite.
        missing = (1 - length.square()).clamp_min(1e-6).sqrt()
        return torch.cat([whole, missing], dim=-1)

    def ideal(self, prototypes: Tensor) -> Tensor:
        unit = normalize(prototypes, dim=-1)
        return torch.cat([unit, torch.zeros_like(unit[..., :1])], dim=-1)

    def scores(self, distances: Tensor) -> Tensor:
        return 1 - distances / 2


class ThresholdedPresence(PresentCosine):
    """PIP-Net's presences when it predicts: those below `least` are none."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least

    def scores(self, distances: Tensor) -> Tensor:
        presence = super().scores(distances)
        return presence if self.training else presence.masked_fill(presence < self.least, 0)


class Projection(nn.Module):
    """g = z·p / |p|, how far a region vector goes along a prototype (TesNet), for |z| up to `reach`.

    As a distance: z / reach gets a further coordinate that makes its length 1, so that the nearest region is
    the one that goes farthest: ||z' - p'||² = 2 - 2 g / reach. With `positive` nothing goes below 0.
    """

    def __init__(self, reach: float, *, positive: bool = False) -> None:
        super().__init__()
        self.reach = reach
        self.positive = positive

    def space(self, vectors: Tensor) -> Tensor:
        within = vectors / self.reach
        # Clamped above 0: at a length of 1 the slope of the root is infinite.
        rest = (1 - within.square().sum(dim=-1, keepdim=True)).clamp_min(1e-6).sqrt()
        return torch.cat([within, rest], dim=-1)

    def ideal(self, prototypes: Tensor) -> Tensor:
        unit = normalize(prototypes, dim=-1)
        return torch.cat([unit, torch.zeros_like(unit[..., :1])], dim=-1)

    def scores(self, distances: Tensor) -> Tensor:
        along = self.reach * (1 - distances / 2)
        return along.relu() if self.positive else along
