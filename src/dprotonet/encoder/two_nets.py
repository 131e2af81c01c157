"""ST-ProtoPNet's two shaping nets side by side (Wang et al., 2023), for its trained networks.

One is for the trivial prototypes, far from where classes meet, one for the support prototypes, near to it.
Their channels stand one behind the other here, so that a prototype of either is a vector with zeros in the
other half. Its code has two kinds: one with tanh, and one without an activation whose map is twice as fine
and whose halves are made unit length, which is how it takes cosines.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize


class TwoNets(nn.Module):
    """(B, in_channels, h, w) to (B, dimension, h, w), twice as fine with `unit`; `dimension` is of both."""

    def __init__(self, in_channels: int, dimension: int, *, unit: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, dimension, 1)
        self.second = nn.Conv2d(dimension, dimension, 1, groups=2)
        self.unit = unit

    @property
    def finer(self) -> int:
        """How many times finer than the feature map its result is."""
        return 2 if self.unit else 1

    def forward(self, feature_map: Tensor) -> Tensor:
        if not self.unit:
            return self.second(self.first(feature_map).tanh()).tanh()
        # 1×1 convolutions and interpolation may change places; so fewer pixels are convolved.
        fine = interpolate(self.second(self.first(feature_map)), scale_factor=2.0, mode="bilinear")
        return torch.cat([normalize(half, dim=1) for half in fine.chunk(2, dim=1)], dim=1)
