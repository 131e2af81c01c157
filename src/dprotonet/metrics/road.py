"""ROAD (Rong et al., 2022): pixels vanish into what their neighbours say, so that no edge gives them away.

A removed pixel becomes the weighted mean of its eight neighbours, removed ones among them: a linear system,
solved here for all masks and channels at once. A little noise hides that the filled places are smooth. No
pixel has to become black or grey, which a network may take for an object.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, max_pool2d, pad

from dprotonet.metrics.curves import Score
from dprotonet.metrics.guards import check_pair, widened
from dprotonet.metrics.ranking import ranks

_STEPS = 1000  # of the solver at most, which needs about ten
_DAMPING = 0.8  # of a smoothing step


@dataclass(frozen=True)
class RoadProtocol:
    """How pixels are removed; numbers compare only under the same `name`.

    For each of the `shares` of an image, round(share · H · W) pixels are removed, the hottest or the coldest
    of the raw map, ties in reading order. `noise` is the standard deviation of what is added to every filled
    value, in the space of the images as the network sees them; the same draw, of `seed`, for every image and
    share. The system is solved until its residual is below `tolerance` of the right side, by far less than
    the noise. `batch` images at a time: speed, no meaning.
    """

    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    noise: float = 0.01
    seed: int = 0
    tolerance: float = 1e-4
    batch: int = 16

    def __post_init__(self) -> None:
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise ValueError(f"shares are {self.shares}; they are shares of the pixels, between 0 and 1")
        if self.noise < 0 or not self.tolerance > 0 or self.batch < 1:
            raise ValueError(f"noise must not be negative, tolerance and batch must be positive: {self}")

    @property
    def name(self) -> str:
        """`road-10-90-noise0.01`."""
        first, last = (f"{100 * share:g}" for share in (self.shares[0], self.shares[-1]))
        return f"road-{first}-{last}-of-{len(self.shares)}-noise{self.noise:g}"


class Road(NamedTuple):
    """Mean probability over the shares (N,), and half of the difference."""

    hottest: Tensor  # they are removed first (MoRF): lower is better
    coldest: Tensor  # they are removed first (LeRF): higher is better
    combined: Tensor  # (coldest - hottest) / 2, as pytorch-grad-cam has it: higher is better


def road(score: Score, images: Tensor, maps: Tensor, *, protocol: RoadProtocol | None = None) -> Road:
    """Both directions and their combination for images (N, C, H, W) and raw maps (N, H, W).

    Costs two forward passes a share, 18 an image by default, and the solving, which takes about as long.
    """
    protocol = protocol or RoadProtocol()
    hottest = road_curves(score, images, maps, hottest=True, protocol=protocol).mean(dim=1)
    coldest = road_curves(score, images, maps, hottest=False, protocol=protocol).mean(dim=1)
    return Road(hottest, coldest, (coldest - hottest) / 2)


@torch.no_grad()
def road_curves(
    score: Score, images: Tensor, maps: Tensor, *, hottest: bool, protocol: RoadProtocol | None = None
) -> Tensor:
    """Probability when each share of the pixels is removed (N, S): the hottest, or else the coldest."""
    protocol = protocol or RoadProtocol()
    check_pair(images, maps)
    removed = _removed(maps, protocol.shares, hottest=hottest)
    found = []
    for row, masks in enumerate(removed):  # image by image: all shares of one are filled together
        filled = imputed(images[row].expand(len(masks), -1, -1, -1), masks, protocol=protocol)
        rows = torch.full((len(masks),), row, device=images.device)
        pairs = zip(filled.split(protocol.batch), rows.split(protocol.batch), strict=True)
        found.append(torch.cat([widened(score(*pair)) for pair in pairs]))
    return torch.stack(found)


@torch.no_grad()
def imputed(images: Tensor, removed: Tensor, *, protocol: RoadProtocol | None = None) -> Tensor:
    """Images (N, C, H, W) whose `removed` pixels (N, H, W) bool are filled from their surroundings.

    An image without any pixel left has nothing to be filled from: there the filling is 0, and noise.
    """
    protocol = protocol or RoadProtocol()
    check_pair(images, removed)
    hidden = removed.unsqueeze(1).to(torch.promote_types(images.dtype, torch.float32))
    filling = _solved(widened(images) * (1 - hidden), hidden, protocol.tolerance)
    generator = torch.Generator().manual_seed(protocol.seed)
    noise = torch.randn(images.shape[1:], generator=generator).to(filling)
    return torch.where(removed.unsqueeze(1), filling + protocol.noise * noise, images).to(images.dtype)


def _removed(maps: Tensor, shares: tuple[float, ...], *, hottest: bool) -> Tensor:
    """Which pixels are gone, bool (N, S, H, W)."""
    pixels = maps[0].numel()
    counts = torch.tensor([round(share * pixels) for share in shares], device=maps.device).view(1, -1, 1, 1)
    order = ranks(maps).unsqueeze(1)
    return order < counts if hottest else order >= pixels - counts


def _solved(known: Tensor, hidden: Tensor, tolerance: float) -> Tensor:
    """x (N, C, H, W) on the hidden pixels, so that each is the mean of its neighbours; `known` is 0 there.

    Σ w (x_neighbour - x) = 0 with weights 1/6 for an edge and 1/12 for a corner, those outside the image left
    out: symmetric and positive, so conjugate gradients solve it. A hole as wide as the image would take
    hundreds of steps; a cycle through ever coarser grids before each (multigrid) makes that about ten.
    """
    grids = _grids(hidden)
    residual = hidden * _neighbours(known)
    goal = tolerance * residual.flatten(2).norm(dim=2)
    solution, direction, before = torch.zeros_like(residual), torch.zeros_like(residual), None
    for _ in range(_STEPS):
        if (residual.flatten(2).norm(dim=2) <= goal).all():
            break
        conditioned = _cycle(residual, grids)
        product = _inner(residual, conditioned)
        direction = conditioned if before is None else conditioned + _ratio(product, before) * direction
        applied = grids[0].applied(direction)
        pace = _ratio(product, _inner(direction, applied))
        solution, residual, before = solution + pace * direction, residual - pace * applied, product
    return solution


class _Grid(NamedTuple):
    """A level of the cycle: where it is unknown, what the weights of a place add up to, how it is reached."""

    hidden: Tensor  # (N, 1, h, w)
    weight: Tensor  # (1, 1, h, w)
    share: Tensor  # (1, 1, h, w): 1 but at the border, where the coarser level has fewer neighbours

    @classmethod
    def of(cls, hidden: Tensor) -> "_Grid":
        ones = torch.ones_like(hidden[:1])
        halves = max_pool2d(ones, 2, ceil_mode=True)
        return cls(hidden, _neighbours(ones), 1 / _enlarged(halves, ones.shape[-2:]))

    def applied(self, values: Tensor) -> Tensor:
        return self.hidden * (self.weight * values - _neighbours(values))

    def smoothed(self, values: Tensor) -> Tensor:
        return _DAMPING * self.hidden * values / self.weight

    def coarser(self, values: Tensor) -> Tensor:
        """The transpose of `finer`, as symmetry wants it."""
        height, width = values.shape[-2:]
        even = pad(values * self.share, (0, width % 2, 0, height % 2)).flatten(0, 1).unsqueeze(1)
        sums = conv2d(even, _stencil(values), stride=2, padding=1)
        return sums.unflatten(0, values.shape[:2]).squeeze(2)

    def finer(self, values: Tensor) -> Tensor:
        return self.hidden * self.share * _enlarged(values, self.hidden.shape[-2:])


def _grids(hidden: Tensor) -> list[_Grid]:
    """From fine to coarse; a square is unknown where all of its four are."""
    grids = [_Grid.of(hidden)]
    while min(grids[-1].hidden.shape[-2:]) > 2:
        grids.append(_Grid.of(-max_pool2d(-grids[-1].hidden, 2, ceil_mode=True)))
    return grids


def _cycle(residual: Tensor, grids: list[_Grid]) -> Tensor:
    """Down to the coarsest level and back, smoothed once on either way."""
    grid, *rest = grids
    found = grid.smoothed(residual)
    if rest:
        left = rest[0].hidden * grid.coarser(residual - grid.applied(found))
        found = found + grid.finer(_cycle(left, rest))
    return found + grid.smoothed(residual - grid.applied(found))


def _neighbours(values: Tensor) -> Tensor:
    """Σ w · neighbour, outside 0: ([1 2 1] down and across, without the middle) / 12."""
    wide = pad(values, (1, 1, 1, 1))
    down = wide[..., :-2, :] + 2 * wide[..., 1:-1, :] + wide[..., 2:, :]
    return (down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:] - 4 * values) / 12


def _stencil(like: Tensor) -> Tensor:
    row = torch.tensor([1.0, 3.0, 3.0, 1.0]).to(like) / 4
    return (row[:, None] * row).view(1, 1, 4, 4)


def _enlarged(values: Tensor, size: torch.Size) -> Tensor:
    """Bilinear, outside 0."""
    planes = values.flatten(0, 1).unsqueeze(1)
    doubled = conv_transpose2d(planes, _stencil(values), stride=2, padding=1)
    return doubled[..., : size[0], : size[1]].unflatten(0, values.shape[:2]).squeeze(2)


def _inner(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum(dim=(-2, -1), keepdim=True)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """0 where a channel is solved already."""
    return torch.where(whole > 0, part / whole.clamp_min(torch.finfo(whole.dtype).tiny), 0.0)
