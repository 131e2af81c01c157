"""Several resolutions of one backbone as a single, finer feature map.

The last map of a classifier is coarse, 7×7 at 224 pixels, and small parts drown in it; one resolution earlier
places are twice as fine, but each knows less. Here they are joined: every channel is brought to unit spread,
of each level the principal components are kept, and coarse maps are enlarged to the finest. The finest level
comes first and by itself: it knows best where something is (`fine_channels`), the others what it is.
Activations of these are few and large; a root evens them out (`evened`), as it does for other counts.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dprotonet.encoder.backbone import Backbone, as_map, dry_run, resting, trunk_name
from dprotonet.errors import UserError
from dprotonet.ops import upsample

_STEEP = 1e-2  # ε: the slope of a root at 0 is 5; activations are of the order of 1


@dataclass(frozen=True)
class Joining:
    """How levels are weighed against each other, and what the projection is fitted to."""

    coarse: float = 1.4
    """Total variance of each coarser level, that of the finest being 1. Of 1280 channels at stride 32 beside
    112 at stride 16 (EfficientNet-Lite0) this leaves each coarse channel 0.35 of its spread, as in a
    pilot on birds; other weights were not tried."""
    power: float = 1.0
    """That activations of coarser levels are raised to; 1 leaves them as they are (docs/parts.md)."""
    images: int = 400
    """Training images, evenly spread, that the projection is fitted to; each has hundreds of places."""


class JoinedLevels(Backbone):
    """A backbone whose last `levels` resolutions are one map (B, D, h, w) of the finest of them.

    D is `channels`, or all channels of the levels if these are fewer; the levels share it, the finest first.
    Where a trunk has one resolution only, as a grid of tokens has, its last blocks are joined. A single level
    is its principal components alone: fewer numbers of each place to cache, and to learn from. Before `fit`
    the projections are random.

    Deviation: the paper uses the last feature map only. Its locations are coarser than the parts in which
    similar classes differ; `levels=1`, the default, is the paper's.
    """

    def __init__(
        self,
        backbone: Backbone,
        levels: int,
        *,
        image_size: int,
        channels: int = 256,
        joining: Joining | None = None,
    ) -> None:
        super().__init__(
            backbone.trunk, backbone.spec, in_channels=backbone.in_channels, report=backbone.report
        )
        self.joining = joining or Joining()
        self.taken: tuple[int, ...] = ()
        self.widths = [backbone.channels]
        if levels > 1:
            with torch.no_grad(), resting(self):
                every = dry_run(self._all_maps, self.trunk, self.in_channels, image_size)
            self.taken = _taken(every, levels, trunk_name(self.trunk))
            self.widths = [every[number].shape[1] for number in (*self.taken, -1)]
        self.kept = shared_out(channels, self.widths)
        self.channels, self.fine_channels = sum(self.kept), self.kept[0]
        self.projections = nn.ModuleList(
            nn.Conv2d(width, kept, kernel_size=1) for width, kept in zip(self.widths, self.kept, strict=True)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Each level is projected where it is small, and then enlarged."""
        return self.of_maps(self._maps(images))

    def of_maps(self, found: Sequence[Tensor]) -> Tensor:
        """The joined map of the levels as the trunk gives them, the finest first."""
        levels = self._evened(found)
        maps = [project(level) for project, level in zip(self.projections, levels, strict=True)]
        size = (maps[0].shape[-2], maps[0].shape[-1])
        enlarged = [level if level.shape[-2:] == size else upsample(level, size) for level in maps]
        return torch.cat(enlarged, dim=1)

    def maps(self, images: Tensor) -> list[Tensor]:
        """The levels (B, C, h, w), the finest first, the others evened; the last is the trunk's own map."""
        return self._evened(self._maps(images))

    def _maps(self, images: Tensor) -> list[Tensor]:
        """As the trunk gives them."""
        return intermediates(self.trunk, images, self.taken) if self.taken else [self.last_map(images)]

    def _evened(self, found: Sequence[Tensor]) -> list[Tensor]:
        fine, *coarse = found
        return [fine, *(evened(level, self.joining.power) for level in coarse)]

    def _all_maps(self, images: Tensor) -> list[Tensor]:
        return intermediates(self.trunk, images, None)

    # ── fitting ──

    @torch.no_grad()
    def fit(self, batches: Iterable[Tensor]) -> Iterator[int]:
        """Fit the projection to batches of images, yielding how many it has seen."""
        sums = _Sums()
        seen = 0
        for images in batches:
            with resting(self):
                sums.add(self.joined(images))
            seen += len(images)
            yield seen
        self._project(sums)

    def joined(self, images: Tensor) -> Tensor:
        """The levels as they are, enlarged to the finest, one below the other: (B, ΣC, h, w)."""
        maps = self.maps(images)
        size = (maps[0].shape[-2], maps[0].shape[-1])
        return torch.cat([upsample(level, size) for level in maps], dim=1)

    def _project(self, sums: "_Sums") -> None:
        """All levels leave with the same scale, so that they weigh what `_weights` says."""
        convolutions: list[Any] = list(self.projections)
        means, weights = sums.mean.split(self.widths), self._weights(sums.covariance).split(self.widths)
        found, first = [], 0
        for mean, weight, kept in zip(means, weights, self.kept, strict=True):
            own = slice(first, first + len(mean))
            found.append(principal(sums.covariance[own, own], weight, kept))
            first = own.stop
        variance = torch.cat([values for _, values in found]).mean()
        scale = variance.clamp_min(torch.finfo(variance.dtype).tiny).rsqrt()
        for convolution, (rows, _), mean in zip(convolutions, found, means, strict=True):
            convolution.weight.copy_(scale * rows[:, :, None, None])
            convolution.bias.copy_(-scale * rows @ mean)

    def _weights(self, covariance: Tensor) -> Tensor:
        """What each channel (ΣC,) is multiplied with: to unit spread, then the level's weight."""
        spread = covariance.diagonal().clamp_min(0).sqrt()
        parts: list[Tensor] = []
        for level, part in enumerate(spread.split(self.widths)):
            share = (
                1.0 if level == 0 else math.sqrt(self.joining.coarse * self.widths[0] / self.widths[level])
            )
            # A channel that is silent on all images has no spread to be divided by, only rounding errors.
            parts.append(torch.where(part > 1e-5 * part.max(), share / part, 0.0))
        return torch.cat(parts)


def evened(activations: Tensor, power: float) -> Tensor:
    """sign(x) · ((|x| + ε)^power - ε^power), so that a few large activations do not outweigh all others.

    Without ε a root would be infinitely steep where a ReLU gives 0, and a gradient through it not a number.
    """
    if power == 1:
        return activations
    return activations.sign() * ((activations.abs() + _STEEP).pow(power) - _STEEP**power)


def shared_out(channels: int, widths: Sequence[int]) -> list[int]:
    """How many of `channels` each level keeps: the finest an equal share, coarser ones what is then left."""
    kept: list[int] = []
    for number, width in enumerate(widths):
        share = (channels - sum(kept)) // (len(widths) - number)
        kept.append(max(1, min(width, share)))
    return kept


def principal(covariance: Tensor, weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Rows (count, C) that turn a vector (C,) into its first principal components, and their variances.

    `weights` (C,) scale the vector before. The sign of a component, which is arbitrary, is that of its
    largest entry, so that two machines agree.
    """
    values, vectors = torch.linalg.eigh(weights[:, None] * covariance * weights)
    values, vectors = values.flip(0)[:count], vectors.flip(1)[:, :count]
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return (vectors * largest.sign()).T * weights, values.clamp_min(0)


class _Sums:
    """Mean and covariance over all places, without keeping any."""

    def __init__(self) -> None:
        self.count, self.total, self.products = 0, torch.zeros(()), torch.zeros(())

    def add(self, maps: Tensor) -> None:
        """Places of a batch (B, C, h, w). Sums over batches are float64: thousands of places are added up."""
        places = maps.float().movedim(1, -1).flatten(0, -2)
        self.count += len(places)
        self.total = self.total.double() + places.sum(dim=0).double().cpu()
        self.products = self.products.double() + (places.T @ places).cpu().double()

    @property
    def mean(self) -> Tensor:
        if not self.count:
            raise UserError("levels cannot be joined without images; give some to fit the projection to")
        return self.total / self.count

    @property
    def covariance(self) -> Tensor:
        mean = self.mean
        return self.products / self.count - mean[:, None] * mean


# ── maps of a trunk ──────────────────────────────────────────────────────────────────────────────────


def intermediates(trunk: nn.Module, images: Tensor, taken: Sequence[int] | None) -> list[Tensor]:
    """Maps of the trunk on its way, all or those `taken`, and at the end what it gives."""
    described: Any = trunk
    if hasattr(trunk, "forward_intermediates"):
        wanted = None if taken is None else list(taken)
        try:
            last, maps = described.forward_intermediates(images, indices=wanted, output_fmt="NCHW")
        except AssertionError as error:  # of timm, about the numbers
            raise UserError(f"levels {wanted} are not all maps of this backbone ({error})") from error
        return [*maps, as_map(trunk, last, images)]
    if isinstance(getattr(trunk, "features", None), nn.Sequential):  # VGG, DenseNet
        maps, last = [], images
        for number, child in enumerate(described.features):
            last = child(last)
            if taken is None or number in taken:
                maps.append(last)
        if taken is not None and len(maps) != len(set(taken)):
            raise UserError(f"levels {list(taken)} are not all maps of this backbone, which has {number + 1}")
        return [*maps, last]
    raise UserError(
        f"{trunk_name(trunk)} shows no maps but its last; give --levels 1, or choose another backbone"
    )


def last_of_each_size(every: Sequence[Tensor]) -> list[int]:
    """Numbers of the maps that are finer than the last: of each resolution the last, the finest first."""
    *earlier, last = every
    found, side = [], last.shape[-1]
    for number in reversed(range(len(earlier))):
        if earlier[number].shape[-1] > side:
            found.append(number)
            side = earlier[number].shape[-1]
    return found[::-1]


def _taken(every: Sequence[Tensor], levels: int, name: str) -> tuple[int, ...]:
    """Which maps before the last are joined with it: the last of each resolution, the finest first.

    Where all have one resolution, the last blocks; the very last of them is the trunk's own map.
    """
    earlier = every[:-1]
    found = list(reversed(last_of_each_size(every)))
    if not found:
        found = list(reversed(range(len(earlier) - 1)))
    if levels - 1 > len(found):
        raise UserError(f"{name} has {len(found) + 1} levels to join, not {levels}; lower --levels")
    return tuple(reversed(found[: levels - 1]))
