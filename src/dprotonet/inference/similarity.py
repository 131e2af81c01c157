"""What "looks like" means: how a distance between region and prototype becomes a score."""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class Similarity(Protocol):
    """`space` maps vectors to where squared L2 is measured; `scores` turns the smallest distance into g."""

    def space(self, vectors: Tensor) -> Tensor: ...
    def scores(self, distances: Tensor) -> Tensor: ...


class LogSimilarity(nn.Module):
    """g = log((s + 1) / (s + ε)), Eq. (2); falls with s, so the maximum over regions is at the smallest s."""

    def __init__(self, epsilon: float = 1e-12) -> None:
        super().__init__()
        self.epsilon = epsilon

    def space(self, vectors: Tensor) -> Tensor:
        return vectors

    def scores(self, distances: Tensor) -> Tensor:
        # The same as log(s + 1) - log(s + ε), which cancels for the large distances of unbounded features.
        return torch.log1p((1 - self.epsilon) / (distances + self.epsilon))


class CosineSimilarity(nn.Module):
    """g = cos(z, p), by the identity ||z' - p'||² = 2 - 2 cos(z, p) of unit vectors.

    Unstated: the paper uses the logarithm only; later work found the cosine more robust (XProtoNet uses it).
    """

    def space(self, vectors: Tensor) -> Tensor:
        return normalize(vectors, dim=-1)

    def scores(self, distances: Tensor) -> Tensor:
        return 1 - distances / 2
