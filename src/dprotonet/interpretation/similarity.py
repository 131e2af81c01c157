"""How the ProtoPNet family explains itself: each place's similarity to a prototype, enlarged to the image.

A region speaks for the places it looks at, its footprint; a place has the mean of the regions that look at
it, weighed by how much they do. For 1×1 points this is ProtoPNet's own map, and its box is here too. Nothing
is masked, so nothing is proved: such a map says where vectors are, not what the network's answer rests on.
The network is reached through callables and tensors only.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Box
from dprotonet.interpretation.nodes import Forward, PrototypeNode, Similarity, precision
from dprotonet.interpretation.prototype_maps import PrototypeMaps

_BLOCK_ELEMENTS = 12_000_000  # of regions × prototypes × channels at a time: 48 MB if all are subtracted


class SimilarityMaps(PrototypeMaps):
    """Explains classes and prototypes of a prototype network by one forward pass.

    `regions`: images to region vectors (B, R, D); `footprint` (R, h, w): where each region looks;
    `similarity`: vectors (B, R, D) and prototypes (P, D) to (B, R, P); `weight` (C, P): the last layer. The
    map of a class is the sum of the maps of all prototypes that speak for it, times their weights.
    """

    name = "similarity"

    def __init__(
        self,
        model: nn.Module,
        *,
        regions: Forward,
        footprint: Tensor,
        similarity: Similarity,
        prototypes: Tensor,
        weight: Tensor,
        classes: Sequence[str] = (),
        internal_batch_size: int = 32,
    ) -> None:
        _check(footprint, prototypes, weight)
        super().__init__(model, weight=weight, classes=classes, internal_batch_size=internal_batch_size)
        self.regions, self.similarity = regions, similarity
        self.footprint, self.prototypes = footprint.detach().float(), prototypes.detach().float()

    def prototype(self, numbers: list[int] | Tensor) -> PrototypeNode:
        """The node of one prototype per image, by number."""
        return PrototypeNode(self.regions, self.similarity, self.prototypes, numbers, model=self.network)

    def _maps(self, images: Tensor, weights: Tensor, batch: int) -> Iterator[Tensor]:
        size = (images.shape[-2], images.shape[-1])
        blocks = images.to(precision(self.network)).split(batch)
        for block, wanted in zip(blocks, weights.split(batch), strict=True):
            vectors = self.regions(block).float()
            if vectors.ndim != 3 or vectors.shape[1] != len(self.footprint):
                raise UserError(
                    f"regions gave {tuple(vectors.shape)}; the footprint has {len(self.footprint)} regions"
                )
            with torch.autocast(vectors.device.type, enabled=False):
                rows = zip(vectors, wanted.to(vectors.device), strict=True)
                evidence = torch.stack([self._evidence(*row) for row in rows])
                yield _enlarged(_places(evidence, self.footprint.to(vectors.device)), size)

    def _own_maps(self, images: Tensor, numbers: Tensor) -> Tensor:
        vectors = self.regions(images.to(precision(self.network))).float()
        wanted = self.prototypes.to(vectors.device)[numbers.to(vectors.device)].unsqueeze(1)  # (M, 1, D)
        rows = vectors.expand(len(wanted), *vectors.shape[1:])
        with torch.autocast(vectors.device.type, enabled=False):
            pairs = zip(rows.split(1), wanted, strict=True)
            evidence = torch.cat([self.similarity(*pair).squeeze(2) for pair in pairs])
            places = _places(evidence, self.footprint.to(vectors.device))
        return _enlarged(places, (images.shape[-2], images.shape[-1]))

    def _evidence(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """Σ weight · similarity of one image's region vectors (R, D), (R,); few prototypes at a time."""
        total = vectors.new_zeros(len(vectors))
        wanted = weights.nonzero().flatten()
        block = max(1, _BLOCK_ELEMENTS // vectors.numel())
        for start in range(0, len(wanted), block):
            some = wanted[start : start + block]
            chosen = self.prototypes.to(vectors.device)[some]
            total += self.similarity(vectors.unsqueeze(0), chosen).squeeze(0) @ weights[some]
        return total


def percentile_box(heat: Tensor, percentile: float = 95) -> Box:
    """ProtoPNet's box: the smallest rectangle round all pixels of a map (H, W) at or above a percentile."""
    if not 0 <= percentile <= 100:
        raise ValueError(f"a percentile lies in [0, 100], not {percentile}")
    values = heat.detach().cpu().double()  # not every device has double precision
    kept = values >= values.flatten().quantile(percentile / 100)
    rows, columns = (kept.any(dim=axis).nonzero().flatten() for axis in (1, 0))
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _places(evidence: Tensor, footprint: Tensor) -> Tensor:
    """The mean over the regions that look at a place, (B, h, w); 0 where none does. Evidence (B, R)."""
    looks = footprint.flatten(1)  # (R, hw)
    total = looks.sum(dim=0)
    means = (evidence @ looks / total).where(total > 0, 0.0)
    return means.unflatten(1, footprint.shape[1:])


def _enlarged(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Cubic, as ProtoPNet has it: (B, h, w) to (B, H, W)."""
    enlarged: Tensor = torch.nn.functional.interpolate(
        maps.unsqueeze(1), size=size, mode="bicubic", align_corners=False
    )
    return enlarged.squeeze(1)


def _check(footprint: Tensor, prototypes: Tensor, weight: Tensor) -> None:
    shapes = f"footprint {tuple(footprint.shape)}, prototypes {tuple(prototypes.shape)}"
    if footprint.ndim != 3 or prototypes.ndim != 2 or 0 in (*footprint.shape, *prototypes.shape):
        raise UserError(f"{shapes}: they must be (R, h, w) and (P, D)")
    if weight.ndim != 2 or weight.shape[1] != len(prototypes):
        raise UserError(f"{shapes}, weight {tuple(weight.shape)}: it must be (C, {len(prototypes)})")
