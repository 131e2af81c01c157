"""The prototype layer: distances to class prototypes and their scores, Eqs. (1) and (2)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.inference.nearest import Nearest
from dprotonet.inference.region_assignment import RegionAssignment, any_region
from dprotonet.inference.similarity import Similarity


class Scored(NamedTuple):
    """Per image and prototype, all (B, P): the score g, the smallest distance s, and the region it is at."""

    scores: Tensor
    distances: Tensor
    region: Tensor


class Prototypes(nn.Module):
    """P vectors (P, D), each of one class: `prototype_class` (P,), at first the same number for every class.

    They start as small random vectors; training replaces these by region vectors of training images.
    """

    prototype_class: Tensor

    def __init__(
        self,
        classes: int,
        per_class: int,
        dimension: int,
        *,
        similarity: Similarity,
        assignment: RegionAssignment = any_region,
    ) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(classes * per_class, dimension) * dimension**-0.5)
        self.register_buffer("prototype_class", torch.arange(classes).repeat_interleave(per_class))
        self.similarity = similarity
        self.assignment = assignment

    @torch.no_grad()
    def replace(self, vectors: Tensor, prototype_class: Tensor) -> None:
        """Other prototypes (P, D), of any number for each class (P,)."""
        self.vectors = nn.Parameter(vectors.clone())
        self.prototype_class = prototype_class.clone()

    def nearest(self, regions: Tensor, wanted: Tensor | None = None) -> Nearest:
        """s of Eq. (1) at the nearest region, of all prototypes or of those `wanted`; regions (B, R, D)."""
        return self.assignment(self.similarity.space(regions), self.similarity.ideal(self.vectors), wanted)

    def forward(self, regions: Tensor) -> Scored:
        distances, region = self.nearest(regions)
        return Scored(self.similarity.scores(distances), distances, region)
