"""Regions that follow the content: z_k(x) ∝ Σ_u a_k(x)_u F(x)_u, one region a part.

Eq. (8) with a mask that depends on the image; the length of z_k says how far the part is there at all. The
maps a_k come as channels behind those of the features (`encoder.part_maps`), so that they learn with the
shaping net. The same part has the same number in every image; a prototype belongs to a part and is compared
with that part only (`inference.pairing.PartRegion`).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class Parts(nn.Module):
    """(B, D + K, h, w), the last K channels being the share of each part in a place, to (B, K, D).

    The direction of a region vector is that of the mean feature of its part, its length the largest share
    that the part has of any place, in [0, 1]: a part that is hidden, or that is not there, has a short one.

    Deviation: the paper's masks are fixed and unrestricted, so that a region vector is a view of nearly the
    whole image; these follow the image. `sharpness` is the power that shares are raised to, so that a region
    is made of the places that clearly belong to it.
    """

    lies_on_the_image = False  # the next part is no next place

    def __init__(self, dimension: int, count: int, size: tuple[int, int], *, sharpness: float = 4.0) -> None:
        super().__init__()
        self.dimension = dimension
        self.count = count
        self.size = size
        self.sharpness = sharpness

    def maps(self, feature_map: Tensor) -> Tensor:
        """Where each part is, (B, K, h, w) in [0, 1]."""
        return feature_map[:, self.dimension :]

    def footprint(self) -> Tensor:
        """Everywhere: where a part is, is decided by the image, see `maps`."""
        return torch.ones(self.count, *self.size)

    def boxes(self, feature_map: Tensor) -> Tensor:
        """Where each part is most, one place of the map: top, left, height, width (B, K, 4) as shares."""
        height, width = feature_map.shape[-2:]
        most = self.maps(feature_map).flatten(2).argmax(dim=-1).double()
        top, left = (most / width).floor() / height, (most % width) / width
        return torch.stack([top, left, torch.full_like(top, 1 / height), torch.full_like(top, 1 / width)], -1)

    def forward(self, feature_map: Tensor) -> Tensor:
        if feature_map.shape[1] != self.dimension + self.count:
            raise ValueError(
                f"feature map {tuple(feature_map.shape)} against {self.dimension} channels of features "
                f"and {self.count} of parts"
            )
        features = feature_map[:, : self.dimension].flatten(2)  # (B, D, hw)
        weight = self.maps(feature_map).flatten(2).pow(self.sharpness)
        direction = normalize(weight @ features.transpose(1, 2), dim=-1, eps=torch.finfo(weight.dtype).tiny)
        return direction * self.presence(feature_map).unsqueeze(-1)

    def presence(self, feature_map: Tensor) -> Tensor:
        """How far each part is there, (B, K) in [0, 1]: its largest share of any place."""
        return self.maps(feature_map).flatten(2).amax(dim=-1)
