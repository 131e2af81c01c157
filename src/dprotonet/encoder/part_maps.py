"""Where the parts of an object are: every place of a feature map is shared out among K parts and background.

As the shares of a place sum to one, two parts cannot both have it: different parts are different places by
construction, not by a penalty. Nobody says what the parts are. They start as clusters of local features that
lie on the object (`training.part_start`) and learn by what tells the classes apart.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, normalize


class PartMaps(nn.Module):
    """Backbone features (B, C, h, w) to shares (B, K, h, w): a softmax over K parts and some backgrounds.

    A part is a direction of local features; the cosine with it, times `contrast`, and an offset are what the
    softmax sees. Backgrounds are directions too, whose shares are dropped. Only the first `channels` of the
    features are looked at: where levels are joined, those of the finest, which know best where something is.
    """

    only_features = False  # shares of a place say whose it is, not what is there: no layer for a CAM

    def __init__(self, channels: int, parts: int, *, backgrounds: int = 6, contrast: float = 10.0) -> None:
        super().__init__()
        self.channels = channels
        self.parts = parts
        self.contrast = contrast
        self.directions = nn.Parameter(torch.randn(parts + backgrounds, channels))
        self.offset = nn.Parameter(torch.zeros(parts + backgrounds))

    def seen(self, feature_map: Tensor) -> Tensor:
        """What the maps depend on: unit vectors (B, channels, h, w)."""
        return normalize(feature_map[:, : self.channels], dim=1)

    def forward(self, feature_map: Tensor) -> Tensor:
        directions = normalize(self.directions, dim=1)[:, :, None, None]
        closeness = conv2d(self.seen(feature_map), directions, self.offset)
        return (self.contrast * closeness).softmax(dim=1)[:, : self.parts]


class WithParts(nn.Module):
    """The features as they are and, as further channels, the shares of the parts: (B, C + K, h, w).

    With `whole` one more channel follows, 1 everywhere: the image as a whole, as if it were one more part.
    """

    only_features = False

    def __init__(self, part_maps: PartMaps, *, whole: bool = False) -> None:
        super().__init__()
        self.part_maps = part_maps
        self.whole = whole

    @property
    def channels(self) -> int:
        """That are put behind the features: the parts, then the whole image."""
        return self.part_maps.parts + self.whole

    def shares(self, joined: Tensor) -> Tensor:
        """Of what `forward` gave, the shares of the parts, (B, K, h, w)."""
        return joined[:, -self.channels :][:, : self.part_maps.parts]

    def forward(self, feature_map: Tensor) -> Tensor:
        maps = [feature_map, self.part_maps(feature_map)]
        if self.whole:
            maps.append(torch.ones_like(feature_map[:, :1]))
        return torch.cat(maps, dim=1)
