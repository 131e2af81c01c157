"""XProtoNet's occurrence loss: a prototype's map moves with the image, and is small.

L = |A(M(x)) - M(A(x))| + |M(x)| under a random affine A, added to the loss of Eq. (4).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample

from dprotonet.encoder.regions import Occurrence
from dprotonet.encoder.shaping import Beside
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.network import DProtoNet
from dprotonet.training.objective import BatchLoss, prototype_step

_TURN, _SCALE, _SHIFT = math.radians(15), 0.15, 0.1  # largest turn, change of scale, and shift of half a side


def random_affine(count: int, device: torch.device) -> Tensor:
    """Small turns, scales and shifts (B, 2, 3), drawn from torch's own generator.

    Unstated: how far XProtoNet's transformations go; ours are 15°, 15 % and 5 % of the side.
    """
    draw = 2 * torch.rand(4, count, device=device) - 1
    angle, scale = _TURN * draw[0], 1 + _SCALE * draw[1]
    cosine, sine, shift = scale * angle.cos(), scale * angle.sin(), _SHIFT * draw[2:]
    rows = [torch.stack([cosine, -sine, shift[0]], 1), torch.stack([sine, cosine, shift[1]], 1)]
    return torch.stack(rows, dim=1)


def moved(maps: Tensor, affine: Tensor) -> Tensor:
    """Images or maps (B, C, H, W) under the affine; what comes from outside is 0."""
    grid = affine_grid(affine.to(maps.dtype), list(maps.shape), align_corners=False)
    return grid_sample(maps, grid, align_corners=False)


class OccurrenceObjective(nn.Module):
    """Eq. (4) of the whole network plus `weight` times the occurrence loss.

    Unstated: whether |·| sums or averages over places, prototypes and images; we average.
    Deviation: in frozen mode A moves the backbone's feature maps, XProtoNet's moves images.
    """

    def __init__(self, network: DProtoNet, loss: PrototypeLoss, *, weight: float) -> None:
        super().__init__()
        self.network = network
        self.loss = loss
        self.weight = weight

    def forward(self, inputs: Tensor, labels: Tensor) -> BatchLoss:
        encoder = self.network.encoder
        feature_map = encoder.feature_map(inputs)
        evidence = self.network.evidence_of(encoder.regions(feature_map))
        step = prototype_step(self.network, self.loss, evidence, labels)
        return step.plus("occurrence", self._occurrence(inputs, feature_map), weight=self.weight)

    def _occurrence(self, inputs: Tensor, feature_map: Tensor) -> Tensor:
        encoder = self.network.encoder
        assert isinstance(encoder.regions, Occurrence)
        assert isinstance(encoder.shaping, Beside)  # of the moved image only the maps are needed
        affine = random_affine(len(inputs), inputs.device)
        maps = encoder.regions.maps(feature_map).float()
        again = encoder.shaping.occurrence(encoder.backbone(moved(inputs, affine))).sigmoid().float()
        return (moved(maps, affine) - again).abs().mean() + maps.mean()
