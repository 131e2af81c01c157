"""Every h×w block of the feature map is a region: Gen-ProtoPNet's patches (Z_G of appendix B)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from dprotonet.errors import UserError


class Patches(nn.Module):
    """(B, D, H, W) to (B, R, D·h·w), stride 1, so that the distance is taken over the whole block."""

    def __init__(self, dimension: int, size: tuple[int, int], *, patch: tuple[int, int]) -> None:
        super().__init__()
        if not (1 <= patch[0] <= size[0] and 1 <= patch[1] <= size[1]):
            raise UserError(
                f"patches of {patch} do not fit the {size[0]}×{size[1]} feature map; choose smaller"
            )
        self.dimension = dimension * patch[0] * patch[1]
        self.size = size
        self.patch = patch

    @property
    def count(self) -> int:
        return (self.size[0] - self.patch[0] + 1) * (self.size[1] - self.patch[1] + 1)

    def footprint(self) -> Tensor:
        cells = torch.eye(self.size[0] * self.size[1]).unflatten(1, self.size)  # one-hot per position
        blocks = unfold(cells.unsqueeze(1), self.patch)  # (positions, h·w, R)
        return blocks.sum(1).T.unflatten(1, self.size)

    def forward(self, feature_map: Tensor) -> Tensor:
        return unfold(feature_map, self.patch).transpose(1, 2)
