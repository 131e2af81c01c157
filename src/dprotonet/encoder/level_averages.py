"""What a backbone has seen on its way: averages of its maps at every resolution, beside its feature map.

The first levels know edges, colours and noise, the last objects. A shaping net keeps only what tells its
classes apart; whether an image is like the training images at all has to be asked here, before it.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.encoder.backbone import Backbone, dry_run, resting
from dprotonet.encoder.levels import JoinedLevels, intermediates, last_of_each_size
from dprotonet.errors import UserError

_BLOCKS = 4  # looked at in a trunk whose maps have all one resolution, such as a transformer


class Levels(NamedTuple):
    """Numbers of a trunk's maps, as `intermediates` counts them; its last map is always taken, too.

    `widths` says how many averages each gives, the last map's included.
    """

    taken: tuple[int, ...]
    widths: tuple[int, ...]


class Seen(NamedTuple):
    """A backbone's feature map (B, D, h, w), and the averages (B, Σ widths) of its levels."""

    feature_map: Tensor
    averages: Tensor


class Kept(NamedTuple):
    """All that is asked of a frozen backbone, in half precision, as it is kept on disk.

    The feature map (B, D, h, w), averages and deviations of the levels before the trunk's last map (B, K),
    and those of the last map (B, C) apart: all three together are the averages of `Seen`.
    """

    feature_map: Tensor
    averages: Tensor
    pooled: Tensor
    deviation: Tensor


class LevelAverages(nn.Module):
    """Images to the averages of a backbone's levels (B, Σ widths), and of deviations from them."""

    def __init__(self, backbone: Backbone, taken: tuple[int, ...]) -> None:
        super().__init__()
        self.backbone = backbone
        self.taken = taken

    def forward(self, images: Tensor) -> Tensor:
        return self.seen(images).averages

    def seen(self, images: Tensor) -> Seen:
        """One pass for both; the feature map is what the backbone itself gives."""
        joined = self.backbone if isinstance(self.backbone, JoinedLevels) else None
        own = () if joined is None else joined.taken
        wanted = sorted({*self.taken, *own})
        *found, last = (
            intermediates(self.backbone.trunk, images, wanted) if wanted else [self.backbone.last_map(images)]
        )
        maps = dict(zip(wanted, found, strict=True))
        averages = [averages_of(level) for level in (*(maps[number] for number in self.taken), last)]
        feature_map = last if joined is None else joined.of_maps([*(maps[number] for number in own), last])
        return Seen(feature_map, torch.cat(averages, dim=1))


class SeenOnce(nn.Module):
    """A backbone with `Kept` for its output, so that nobody has to show it the same images again."""

    def __init__(self, backbone: Backbone, levels: Levels) -> None:
        super().__init__()
        self.look = LevelAverages(backbone, levels.taken)
        self.last = levels.widths[-1] // 2  # channels of the last map

    def forward(self, images: Tensor) -> Kept:
        seen = self.look.seen(images)
        averages = seen.averages.half()
        earlier = averages.shape[1] - 2 * self.last
        return Kept(seen.feature_map.half(), *averages.split([earlier, self.last, self.last], dim=1))


def seen_once(backbone: Backbone, image_size: int) -> SeenOnce:
    """What frozen features of square images are made by."""
    return SeenOnce(backbone, every_level(backbone, image_size))


def averages_of(level: Tensor) -> Tensor:
    """Of a map (B, C, h, w) every channel's average over all places, and its deviation from it: (B, 2C)."""
    places = level.float().flatten(2)
    mean = places.mean(dim=2)
    deviation = (places - mean.unsqueeze(2)).square().mean(dim=2).sqrt()
    return torch.cat([mean, deviation], dim=1)


@torch.no_grad()
def every_level(backbone: Backbone, image_size: int) -> Levels:
    """Of each resolution the last map; of a trunk with one resolution some on the way.

    The last map alone where a trunk shows no other.
    """

    def maps(images: Tensor) -> list[Tensor]:
        try:
            return intermediates(backbone.trunk, images, None)
        except UserError:
            return [backbone.last_map(images)]

    with resting(backbone):
        every = dry_run(maps, backbone.trunk, backbone.in_channels, image_size)
    blocks = len(every) - 1
    quarters = {blocks * part // _BLOCKS - 1 for part in range(1, _BLOCKS)} if blocks >= _BLOCKS else set()
    taken = tuple(last_of_each_size(every) or sorted(quarters))
    widths = [2 * every[number].shape[1] for number in (*taken, -1)]
    return Levels(taken, tuple(widths))
