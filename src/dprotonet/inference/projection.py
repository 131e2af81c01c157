"""The push: prototypes become region vectors of training images (Section 3.3, Eqs. (9)-(11)).

Two passes. `SourceSearch` finds, over the whole training set, the nearest region of an image of the
prototype's own class. `MultiImageMean` then looks at that image and its augmentations and averages the
nearest region of each. Both only eat batches of region vectors and both can be merged across processes;
loading, drawing and saving are somebody else's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.inference.prototypes import Prototypes

NOTHING = -1


@dataclass(frozen=True)
class Sources:
    """Each prototype's nearest own-class region: all (P,); index is NOTHING if its class had no image."""

    distances: Tensor
    index: Tensor
    region: Tensor


class SourceSearch:
    """Running minimum over the training set: the nearest own-class image of every prototype."""

    def __init__(self, prototypes: Prototypes) -> None:
        self.prototypes = prototypes
        count, device = len(prototypes.vectors), prototypes.vectors.device
        self.distances = torch.full((count,), torch.inf, device=device)
        self.index = torch.full((count,), NOTHING, device=device, dtype=torch.long)
        self.region = torch.full((count,), NOTHING, device=device, dtype=torch.long)

    @torch.no_grad()
    def update(self, regions: Tensor, labels: Tensor, index: Tensor) -> None:
        """Look at a batch: regions (B, R, D), labels (B,), index (B,) of the images in the training set."""
        order = index.argsort()  # of equals the minimum takes the first
        regions, labels, index = regions[order], labels[order], index[order]
        distances, region = self.prototypes.nearest(regions)
        foreign = labels.unsqueeze(1) != self.prototypes.prototype_class
        distances = distances.masked_fill(foreign, torch.inf)
        smallest, row = distances.min(dim=0)
        self.merge(Sources(smallest, index[row], region.gather(0, row.unsqueeze(0)).squeeze(0)))

    def merge(self, other: Sources) -> None:
        """Take what is nearer; of equals the smaller index, so that the order of looking does not matter."""
        tie = (other.distances == self.distances) & (other.index < self.index)
        nearer = ((other.distances < self.distances) | tie) & other.distances.isfinite()
        self.distances = torch.where(nearer, other.distances, self.distances)
        self.index = torch.where(nearer, other.index, self.index)
        self.region = torch.where(nearer, other.region, self.region)

    def sources(self) -> Sources:
        return Sources(self.distances, self.index, self.region)


class MultiImageMean:
    """p_j = (1/R) Σ_r z_{e_r}(x^r), Eqs. (10) and (11), over the views x^r of the prototype's source image.

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
        wanted = torch.isin(self.sources.index, index).nonzero().squeeze(1)  # only these prototypes matter
        if not len(wanted):
            return
        nearest = self.prototypes.nearest(regions, wanted).region  # e_r, Eq. (9)
        belongs = index.unsqueeze(1) == self.sources.index[wanted]  # (B, wanted)
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
    gap = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    length = vectors.norm(dim=1).clamp_min(1e-12)
    same_class = prototype_class.unsqueeze(1) == prototype_class
    earlier = torch.ones_like(same_class).tril(-1)
    return ((gap <= tolerance * length.unsqueeze(1)) & same_class & earlier).any(dim=1)
