"""Maps that explain nothing, to be printed beside every explainer: what beats them has found something.

Each game has one that plays it well. A map of ones gives the image back, and so a drop of zero ("Fake-CAM");
objects stand in the middle, so a centre Gaussian localises; a random map shows what luck alone is worth.
"""

import torch
from torch import Tensor

from dprotonet.ops import unit_range


def random_maps(n: int, size: tuple[int, int], seed: int) -> Tensor:
    """Every pixel drawn from U(0, 1) by itself (N, H, W); the same seed gives the same maps."""
    return torch.rand(n, *size, generator=torch.Generator().manual_seed(seed))


def centre_gaussian(n: int, size: tuple[int, int], *, spread: float = 0.25) -> Tensor:
    """A bell in the middle, its standard deviation `spread` of each side; scaled to [0, 1], (N, H, W)."""
    rows, columns = (_offsets(length) / spread for length in size)
    bell = torch.exp(-0.5 * (rows.unsqueeze(1) ** 2 + columns**2))
    return unit_range(bell).repeat(n, 1, 1)


def all_but_one(n: int, size: tuple[int, int]) -> Tensor:
    """Ones, and zero in the upper left pixel: "Fake-CAM", which games AD and AI (N, H, W)."""
    maps = torch.ones(n, *size)
    maps[:, 0, 0] = 0
    return maps


def _offsets(length: int) -> Tensor:
    """Distance of the pixel centres from the middle, as a share of the side (length,)."""
    return (torch.arange(length) - (length - 1) / 2) / length
