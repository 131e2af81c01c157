"""Regions that follow the content: z_k(x) ∝ A_k (Σ_u a_k(x)_u F(x)_u - c_k), one region per part.

Eq. (8) with a mask that depends on the image, and a shaping net for each part: what tells beaks apart is not
what tells tails apart. The length of z_k says how far the part is there at all. The maps a_k come as channels
behind those of the features (`encoder.part_maps`). The same part has the same number in every image; a
prototype belongs to a part and is compared with that part only (`inference.assignment.PartRegion`).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout1d, normalize


class Parts(nn.Module):
    """(B, C + K, h, w), the last K channels being the share of each part in a place, to (B, K, D).

    The direction of a region vector is that of the mean feature of its part, seen from the part's `centre`
    and turned by its `shaping`; its length is the largest share that the part has of any place, in [0, 1]: a
    part that is hidden, or that is not there, has a short one. A region whose share is 1 everywhere is the
    image as a whole. While it trains, it does without a share `dropout` of the channels, the same for all
    parts.

    Deviation: the paper's masks are fixed and unrestricted, so that a region vector summarises nearly the
    whole image; these follow the image content. Assignments are raised to the power `sharpness`, so that only
    locations that clearly belong to a region contribute. The paper has one shaping net of two convolutions
    for all regions; here each part has its own linear one, which commutes with pooling and starts as the
    identity.
    """

    lies_on_the_image = False  # the next part is no next place

    def __init__(
        self, channels: int, dimension: int, count: int, size: tuple[int, int], *, sharpness: float = 4.0
    ) -> None:
        super().__init__()
        self.channels = channels
        self.dimension = dimension
        self.count = count
        self.size = size
        self.sharpness = sharpness
        self.dropout = 0.0
        self.centre = nn.Parameter(torch.zeros(count, channels))
        self.shaping = nn.Parameter(torch.eye(dimension, channels).repeat(count, 1, 1))

    def maps(self, feature_map: Tensor) -> Tensor:
        """Where each part is, (B, K, h, w) in [0, 1]."""
        return feature_map[:, self.channels :]

    def footprint(self) -> Tensor:
        """Everywhere: where a part is, is decided by the image, see `maps`."""
        return torch.ones(self.count, *self.size)

    def boxes(self, feature_map: Tensor) -> Tensor:
        """Where each part is most, one place of the map: top, left, height, width (B, K, 4) as shares.

        What is everywhere alike has the whole image.
        """
        height, width = feature_map.shape[-2:]
        share = self.maps(feature_map).flatten(2)
        most = share.argmax(dim=-1).double()
        top, left = (most / width).floor() / height, (most % width) / width
        place = torch.stack(
            [top, left, torch.full_like(top, 1 / height), torch.full_like(top, 1 / width)], -1
        )
        everywhere = (share.amin(dim=-1) == share.amax(dim=-1)).unsqueeze(-1)
        return torch.where(everywhere, place.new_tensor([0.0, 0.0, 1.0, 1.0]), place)

    def forward(self, feature_map: Tensor) -> Tensor:
        channelwise = (self.pooled(feature_map) - self.centre).transpose(1, 2)  # (B, C, K)
        heard = dropout1d(channelwise, self.dropout, self.training).transpose(1, 2)
        shaped = self._shaped(heard)
        direction = normalize(shaped, dim=-1, eps=torch.finfo(shaped.dtype).tiny)
        return direction * self.presence(feature_map).unsqueeze(-1)

    def added_by_places(self, feature_map: Tensor, towards: Tensor) -> Tensor:
        """What each place adds to the products z_k · `towards`_k, (B, K, h, w); towards (B, K, D).

        Exact: once the length of A_k (mean - c_k) is known, the direction of a region vector is linear in a
        weighted mean over places, so the places of a part add up to its product.
        """
        features, weight = self._features(feature_map), self._weight(feature_map)
        length = self._shaped(weight @ features.transpose(1, 2) - self.centre).norm(dim=-1)
        heard = torch.einsum("bkd,kdc->bkc", towards, self.shaping)
        said = heard @ features - (heard * self.centre).sum(dim=-1, keepdim=True)
        scale = self.presence(feature_map) / length.clamp_min(torch.finfo(length.dtype).tiny)
        return (scale.unsqueeze(-1) * weight * said).unflatten(2, feature_map.shape[-2:])

    def pooled(self, feature_map: Tensor) -> Tensor:
        """The mean feature of each part, (B, K, C)."""
        if feature_map.shape[1] != self.channels + self.count:
            raise ValueError(
                f"feature map {tuple(feature_map.shape)} against {self.channels} channels of features "
                f"and {self.count} of parts"
            )
        return self._weight(feature_map) @ self._features(feature_map).transpose(1, 2)

    def _features(self, feature_map: Tensor) -> Tensor:
        return feature_map[:, : self.channels].flatten(2)  # (B, C, hw)

    def _weight(self, feature_map: Tensor) -> Tensor:
        """How much each place counts for each part, (B, K, hw); they sum to one."""
        share = self.maps(feature_map).flatten(2)
        # Relative to the largest share, or the power of a part that is hardly there would be rounded to 0.
        tiny = torch.finfo(share.dtype).tiny
        weight = (share / share.amax(dim=-1, keepdim=True).clamp_min(tiny)).pow(self.sharpness)
        return weight / weight.sum(dim=-1, keepdim=True).clamp_min(tiny)

    def _shaped(self, mean: Tensor) -> Tensor:
        return torch.einsum("bkc,kdc->bkd", mean, self.shaping)

    def presence(self, feature_map: Tensor) -> Tensor:
        """How far each part is there, (B, K) in [0, 1]: its largest share of any place."""
        return self.maps(feature_map).flatten(2).amax(dim=-1)
