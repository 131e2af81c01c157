"""What an optimisation yields: enough for a progress bar, a live preview, early stopping and the result."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor


class Step(NamedTuple):
    """After `number` of `total` steps: losses (N,), masks by size (N, s, s), the summed map (N, H, W)."""

    number: int
    total: int
    loss: Tensor
    masks: Mapping[int, Tensor]
    raw: Tensor
