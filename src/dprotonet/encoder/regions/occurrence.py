"""Learned occurrence maps: f_p(x) = Σ_u M_p(x)_u F(x)_u, one region a prototype (Z_X of appendix B).

The maps depend on the image: the shaping net gives them as channels behind those of the features (`Beside`),
so that they learn with it. Region j is prototype j's own; who may look at which is the assignment's business.
"""

import torch
from torch import Tensor, nn


class Occurrence(nn.Module):
    """(B, D + P, h, w), the last P channels being logits of occurrence, to (B, P, D).

    Unstated: re-implementations of XProtoNet disagree about sigmoid or absolute value (sigmoid here) and
    about sum or mean over locations (sum here; under the cosine both are the same).
    """

    lies_on_the_image = False  # its regions are those of the prototypes

    def __init__(self, dimension: int, count: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.dimension = dimension
        self.count = count
        self.size = size

    def maps(self, feature_map: Tensor) -> Tensor:
        """Where each prototype occurs, (B, P, h, w) in [0, 1]."""
        return feature_map[:, self.dimension :].sigmoid()

    def footprint(self) -> Tensor:
        """Everywhere: where a region looks is decided by the image, see `maps`."""
        return torch.ones(self.count, *self.size)

    def forward(self, feature_map: Tensor) -> Tensor:
        if feature_map.shape[1] != self.dimension + self.count:
            raise ValueError(
                f"feature map {tuple(feature_map.shape)} against {self.dimension} channels of features "
                f"and {self.count} of occurrence"
            )
        features = feature_map[:, : self.dimension].flatten(2)  # (B, D, hw)
        return self.maps(feature_map).flatten(2) @ features.transpose(1, 2)
