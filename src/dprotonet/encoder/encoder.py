"""Encoder = backbone → shaping → regions (Figure 2, left)."""

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

    def feature_map(self, images: Tensor) -> Tensor:
        """F(x), what regions are taken from."""
        shaped: Tensor = self.shaping(self.backbone(images))
        return shaped
