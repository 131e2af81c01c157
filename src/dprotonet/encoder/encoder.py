"""Encoder = backbone → shaping → regions (Figure 2, left)."""

from typing import Any

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Image to region vectors. The three parts are injected; any module of the right shapes will do."""

    def __init__(self, backbone: nn.Module, shaping: nn.Module, regions: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.shaping = shaping
        self.regions = regions

    def forward(self, images: Tensor) -> Tensor:
        regions: Tensor = self.regions(self.feature_map(images))
        return regions  # (B, R, D)

    @property
    def lies_on_the_image(self) -> bool:
        """False where regions are no places, so that nobody takes their row for a map."""
        return getattr(self.regions, "lies_on_the_image", True)

    def boxes(self) -> Tensor | None:
        """Where each region lies on the image: top, left, height and width (R, 4) as shares of its sides.

        None where regions are no places, or where the image decides (`boxes_in`). What a region has seen is
        larger: its receptive field.
        """
        if not self.lies_on_the_image:
            return None
        regions: Any = self.regions
        seen: Tensor = regions.footprint() > 0
        (top, height), (left, width) = (_span(seen.any(dim=axis)) for axis in (2, 1))
        return torch.stack([top, left, height, width], dim=1)

    def boxes_in(self, feature_map: Tensor) -> Tensor | None:
        """The same in each image (B, R, 4), where regions follow the content; else None, and see `boxes`."""
        found = getattr(self.regions, "boxes", None)
        return None if found is None else found(feature_map)

    def feature_map(self, images: Tensor) -> Tensor:
        """F(x), what regions are taken from."""
        shaped: Tensor = self.shaping(self.backbone(images))
        return shaped


def _span(seen: Tensor) -> tuple[Tensor, Tensor]:
    """Where each row of (R, n) bool begins to be true, and for how long, as shares of n."""
    flags = seen.to(torch.float64)
    return flags.argmax(dim=1).double() / seen.shape[1], flags.sum(dim=1) / seen.shape[1]
