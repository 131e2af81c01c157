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
