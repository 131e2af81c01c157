"""The shaping network f_a: two 1×1 convolutions with a ReLU between (Section 4.3)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Shaping(nn.Sequential):
    """(B, in_channels, h, w) to (B, dimension, h, w).

    Without an `ending` region vectors and distances are unbounded; ProtoPNet ends with a sigmoid.
    Unstated: the width between the two (we take `dimension`) and the initial weights (He, as ProtoPNet).
    """

    def __init__(self, in_channels: int, dimension: int = 512, *, ending: Sequence[nn.Module] = ()) -> None:
        first, second = nn.Conv2d(in_channels, dimension, 1), nn.Conv2d(dimension, dimension, 1)
        super().__init__(first, nn.ReLU(), second, *ending)
        for layer in (first, second):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, feature_map: Tensor) -> Tensor:
        shaped: Tensor = super().forward(feature_map)
        return shaped


class Beside(nn.Module):
    """Features and, as further channels, occurrence logits of the same map (XProtoNet): (B, D + P, h, w)."""

    def __init__(self, features: nn.Module, occurrence: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.occurrence = occurrence

    def forward(self, feature_map: Tensor) -> Tensor:
        return torch.cat([self.features(feature_map), self.occurrence(feature_map)], dim=1)
