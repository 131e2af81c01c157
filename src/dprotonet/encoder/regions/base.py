"""What the rest of the network may ask of regions."""

from typing import Protocol

from torch import Tensor


class Regions(Protocol):
    """Feature map (B, D, h, w) to region vectors (B, R, D')."""

    @property
    def count(self) -> int:
        """R."""
        ...

    @property
    def dimension(self) -> int:
        """D', the length of a region vector."""
        ...

    def footprint(self) -> Tensor:
        """Where each region looks: weights (R, h, w) in [0, 1], averaged over channels."""
        ...

    def __call__(self, feature_map: Tensor) -> Tensor: ...
