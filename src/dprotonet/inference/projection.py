"""The push: prototypes become region vectors of training images (Section 3.3, Eqs. (9)-(11)).

Two passes. `SourceSearch` finds, over the whole training set, the nearest region of an image of the
prototype's own class, or of several such images. `MultiImageMean` then looks at these images and their
augmentations and averages the nearest region of each. Both only eat batches of region vectors and both can be
merged across processes; loading, drawing and saving are somebody else's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.inference.own import allowed_prototypes, own_prototypes
from dprotonet.inference.prototypes import Prototypes

NOTHING = -1


@dataclass(frozen=True)
class Sources:
    """Each prototype's nearest own-class images and their nearest region: all (P, S), the nearest first.

    Where its class had fewer images, index and region are NOTHING.
    """

    distances: Tensor
    index: Tensor
    region: Tensor


class SourceSearch:
    """The `images` nearest own-class images of every prototype so far.

    Unstated: how many images a prototype comes from. The paper averages augmentations of the nearest image
    (`images` 1). Averaging several images of the class makes a prototype of a small region less dependent on
    a single image (docs/parts.md).
    `sources` (C, P) bool says of which classes an image may be, where that is not the prototype's own alone.
    """

    def __init__(self, prototypes: Prototypes, images: int = 1, *, sources: Tensor | None = None) -> None:
        self.prototypes = prototypes
        self._allowed = sources
        shape, device = (len(prototypes.vectors), images), prototypes.vectors.device
        index, region = (torch.full(shape, NOTHING, device=device) for _ in range(2))
        self._found = Sources(torch.full(shape, torch.inf, device=device), index, region)

    @torch.no_grad()
    def update(self, regions: Tensor, labels: Tensor, index: Tensor) -> None:
        """Look at a batch: regions (B, R, D), labels (B,) or rows (B, L), index (B,) in the training set."""
        own = own_prototypes(labels, self.prototypes.prototype_class)
        allowed = own if self._allowed is None else allowed_prototypes(labels, self._allowed)
        wanted = allowed.any(dim=0).nonzero().squeeze(1)  # of many classes a batch has few
        if not len(wanted):
            return
        distances, region = self.prototypes.nearest(regions, wanted)
        distances = distances.masked_fill(~allowed[:, wanted], torch.inf)
        self._merge(Sources(distances.T, index.expand(len(wanted), -1), region.T), wanted)

    def merge(self, other: Sources) -> None:
        """Take what is nearer; of equals the smaller index, so that the order of looking does not matter.

        No image may be in both.
        """
        self._merge(other, torch.arange(len(other.distances), device=other.distances.device))

    def _merge(self, other: Sources, rows: Tensor) -> None:
        """Of the prototypes `rows`; only those that find something as near as what they have change."""
        known = self._found
        wide = torch.promote_types(known.distances.dtype, other.distances.dtype)
        self._found = Sources(known.distances.to(wide), known.index, known.region)
        least = other.distances.masked_fill(~other.distances.isfinite(), torch.inf).amin(dim=1)
        nearer = (least.isfinite() & (least <= self._found.distances[rows, -1])).nonzero().squeeze(1)
        rows, other = rows[nearer], Sources(*(part[nearer] for part in vars(other).values()))
        pairs = zip(vars(self._found).values(), vars(other).values(), strict=True)
        distances, index, region = (torch.cat([mine[rows], new], dim=1) for mine, new in pairs)
        order = index.argsort(dim=1)
        nearest = distances.gather(1, order).argsort(dim=1, stable=True)
        order = order.gather(1, nearest)[:, : self._found.index.shape[1]]
        distances, index, region = (column.gather(1, order) for column in (distances, index, region))
        none = ~distances.isfinite()
        index, region = (part.masked_fill(none, NOTHING) for part in (index, region))
        for mine, new in zip(vars(self._found).values(), (distances, index, region), strict=True):
            mine[rows] = new

    def sources(self) -> Sources:
        return self._found


class MultiImageMean:
    """p_j = (1/R) Σ_r z_{e_r}(x^r), Eqs. (10) and (11), over the views x^r of the prototype's source images.

    Sums are kept in float64 on the CPU (not every device knows float64), so that the result does not depend
    on how views were spread over processes.
    """

    def __init__(self, prototypes: Prototypes, sources: Sources) -> None:
        self.prototypes = prototypes
        self.sources = sources
        self.total = torch.zeros(prototypes.vectors.shape, dtype=torch.float64)
        self.count = torch.zeros(len(prototypes.vectors), dtype=torch.float64)

    @torch.no_grad()
    def update(self, regions: Tensor, index: Tensor) -> None:
        """Look at a batch of views: regions (B, R, D), index (B,) of the image each view was made from."""
        concerned = torch.isin(self.sources.index, index).any(dim=1)
        wanted = concerned.nonzero().squeeze(1)  # only these prototypes matter
        if not len(wanted):
            return
        nearest = self.prototypes.nearest(regions, wanted).region  # e_r, Eq. (9)
        belongs = (index[:, None, None] == self.sources.index[wanted]).any(dim=-1)  # (B, wanted)
        view, which = belongs.nonzero(as_tuple=True)
        chosen = regions[view, nearest[view, which]].cpu().double()
        self.total.index_add_(0, wanted[which].cpu(), chosen)
        self.count += torch.bincount(wanted[which].cpu(), minlength=len(self.count))

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """The new prototypes (P, D); one without any view keeps its old value."""
        mean = self.total / self.count.clamp_min(1).unsqueeze(1)
        old = self.prototypes.vectors
        seen = (self.count > 0).unsqueeze(1).to(old.device)
        return torch.where(seen, mean.to(old.dtype).to(old.device), old)


def collapsed_prototypes(vectors: Tensor, prototype_class: Tensor, *, tolerance: float = 1e-4) -> Tensor:
    """Which prototypes (P,) lie on an earlier one of their class: closer than `tolerance` of their length.

    The field's most frequent complaint: ten prototypes of a class that are one and the same.
    """
    vectors, prototype_class = vectors.detach().cpu().double(), prototype_class.cpu()
    found = torch.zeros(len(vectors), dtype=torch.bool)
    for label in prototype_class.unique():
        members = (prototype_class == label).nonzero().squeeze(1)
        own = vectors[members]
        gap = torch.cdist(own, own, compute_mode="donot_use_mm_for_euclid_dist")
        length = own.norm(dim=1).clamp_min(1e-12)
        near = (gap <= tolerance * length.unsqueeze(1)).tril(-1)  # to an earlier one
        found[members] = near.any(dim=1)
    return found
