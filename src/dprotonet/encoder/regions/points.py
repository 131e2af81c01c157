"""Every position of the feature map is a region: ProtoPNet's 1×1 patches (Z_P of appendix B)."""

import torch
from torch import Tensor, nn


class Points(nn.Module):
    """(B, D, h, w) to (B, h·w, D)."""

    def __init__(self, dimension: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.dimension = dimension
        self.size = size

    @property
    def count(self) -> int:
        return self.size[0] * self.size[1]

    def footprint(self) -> Tensor:
        return torch.eye(self.count).unflatten(1, self.size)

    def forward(self, feature_map: Tensor) -> Tensor:
        return feature_map.flatten(2).transpose(1, 2)
