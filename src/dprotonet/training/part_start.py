"""Where the part maps start: as clusters of local features, without any label.

First all places are clustered. What is background reaches the image's border, the object seldom does:
clusters that keep away from it are the foreground. Its places are then clustered once more, into parts; the
clusters at the border become the backgrounds.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dprotonet.encoder.part_maps import PartMaps
from dprotonet.network import DProtoNet
from dprotonet.training.views import ViewSource, chunks, derived_seed, load

_CLUSTERS = 20  # of all places, to tell foreground from background
_IMAGES = 800  # looked at, evenly spread
_PLACES = 20_000  # clustered; more change little
_AWAY = 0.7  # of the border's share in the image: clusters with less of it are foreground
_LEAST = 0.05  # of all places; with less foreground the border says nothing, as in an X-ray
_MARGIN = 1 / 7  # of the side, on each side: the border


@torch.no_grad()
def start_parts(
    network: DProtoNet,
    part_maps: PartMaps,
    views: ViewSource,
    *,
    seed: int,
    batch: int = 60,
    device: torch.device,
) -> None:
    """Set the directions of `part_maps` from training images."""
    generator = torch.Generator().manual_seed(derived_seed(seed, 1))
    places = torch.cat(list(_places(network, part_maps, views, batch=batch, device=device)))  # (N, h, w, C)
    height, width = places.shape[1:3]
    border = border_of(height, width)
    every = spherical_clusters(places.flatten(0, 2), _CLUSTERS, generator)
    nearest = (places @ every.T).argmax(dim=-1)  # (N, h, w)
    share = torch.stack([_border_share(nearest == number, border) for number in range(len(every))])
    front = torch.isin(nearest, (share < _AWAY * border.float().mean()).nonzero().flatten())
    if front.float().mean() < _LEAST:
        front = torch.ones_like(front)
    parts = spherical_clusters(places[front], part_maps.parts, generator)
    behind = every[share.argsort(descending=True)[: len(part_maps.directions) - part_maps.parts]]
    part_maps.directions[: len(parts)] = parts.to(part_maps.directions)
    part_maps.directions[len(parts) : len(parts) + len(behind)] = behind.to(part_maps.directions)
    part_maps.offset.zero_()


def border_of(height: int, width: int) -> Tensor:
    """Places near the edge, bool (h, w)."""
    border = torch.ones(height, width, dtype=torch.bool)
    rows, columns = round(height * _MARGIN), round(width * _MARGIN)
    border[rows : height - rows, columns : width - columns] = False
    return border


def spherical_clusters(vectors: Tensor, count: int, generator: torch.Generator, rounds: int = 25) -> Tensor:
    """Unit centres (count, C) of unit vectors (N, C) by k-means of the cosine, started as k-means++ does."""
    some = vectors[torch.randperm(len(vectors), generator=generator)[:_PLACES]]
    centres = some[:1]
    while len(centres) < count:
        gap = (1 - (some @ centres.T).amax(dim=1)).clamp_min(1e-9).square()
        centres = torch.cat([centres, some[torch.multinomial(gap, 1, generator=generator)]])
    for _ in range(rounds):
        members = torch.nn.functional.one_hot((some @ centres.T).argmax(dim=1), count).to(some.dtype)
        means = members.T @ some
        centres = torch.where(members.sum(dim=0).unsqueeze(1) > 0, normalize(means, dim=1), centres)
    return centres


def _places(
    network: DProtoNet, part_maps: PartMaps, views: ViewSource, *, batch: int, device: torch.device
) -> Iterator[Tensor]:
    """What `part_maps` sees of plain images, (B, h, w, C), on the CPU."""
    was_training = network.training
    network.eval()
    keys = [(index, 0) for index in range(0, len(views), -(-len(views) // _IMAGES))]
    for view in load(views, chunks(keys, batch), workers=0):
        maps = network.encoder.backbone(view.inputs.to(device)).float()
        yield part_maps.seen(maps).movedim(1, -1).cpu()
    network.train(was_training)


def _border_share(members: Tensor, border: Tensor) -> Tensor:
    """Which share of a cluster (N, h, w) lies at the border; 1 of an empty one."""
    count = members.sum()
    return members[:, border].sum() / count if count else torch.tensor(1.0)
