"""Where the part maps start: as clusters of local features of the foreground, which is found in two ways.

By the border, without any label: all places are clustered. What is background reaches the image's border, the
object seldom does: clusters that keep away from it are the foreground. Its places are then clustered once
more, into parts; the clusters at the border become the backgrounds.

By energy (`training.foreground`): the foreground is the places that look most like what tells the classes
apart, not whole clusters. They are clustered into parts, all others into backgrounds, and the directions of
both then learn to share places out that way.
"""

import torch
from torch import Tensor
from torch.nn.functional import nll_loss, normalize

from dprotonet.encoder.part_maps import PartMaps
from dprotonet.network import DProtoNet
from dprotonet.training.foreground import border_of, class_energy, object_likeness
from dprotonet.training.views import ViewSource, chunks, derived_seed, load

_CLUSTERS = 20  # of all places, to tell foreground from background
_IMAGES = 800  # looked at, evenly spread
_PLACES = 20_000  # clustered; more change little
_AWAY = 0.7  # of the border's share in the image: clusters with less of it are foreground
_LEAST = 0.05  # of all places; with less foreground the border says nothing, as in an X-ray
_FRONT = 0.25  # of all places: those that look most like an object
_STEPS, _RATE = 50, 0.02  # of learning to share out as the clusters do; more change nothing


@torch.no_grad()
def start_parts(
    network: DProtoNet,
    part_maps: PartMaps,
    views: ViewSource,
    *,
    seed: int,
    by_energy: bool = False,
    batch: int = 60,
    device: torch.device,
) -> None:
    """Set the directions of `part_maps` from training images."""
    generator = torch.Generator().manual_seed(derived_seed(seed, 1))
    maps, labels = _maps(network, views, batch=batch, device=device)
    places = normalize(maps[..., : part_maps.channels], dim=-1)  # (N, h, w, C), what the part maps see
    if by_energy:
        _by_energy(part_maps, places, class_energy(maps, labels), generator)
    else:
        _by_border(part_maps, places, generator)


def _by_border(part_maps: PartMaps, places: Tensor, generator: torch.Generator) -> None:
    border = border_of(*places.shape[1:3])
    every = spherical_clusters(places.flatten(0, 2), _CLUSTERS, generator)
    nearest = (places @ every.T).argmax(dim=-1)  # (N, h, w)
    share = torch.stack([_border_share(nearest == number, border) for number in range(len(every))])
    front = torch.isin(nearest, (share < _AWAY * border.float().mean()).nonzero().flatten())
    if front.float().mean() < _LEAST:
        front = torch.ones_like(front)
    parts = spherical_clusters(places[front], part_maps.parts, generator)
    behind = every[share.argsort(descending=True)[: len(part_maps.directions) - part_maps.parts]]
    _put(part_maps, parts, behind)


def _by_energy(part_maps: PartMaps, places: Tensor, energy: Tensor, generator: torch.Generator) -> None:
    likeness = object_likeness(places, energy).flatten()
    order = likeness.argsort(descending=True, stable=True)
    count = min(max(round(_FRONT * len(order)), 1), len(order) - 1)
    front, behind = (
        _some(places.flatten(0, 2)[rows], generator) for rows in order.split([count, len(order) - count])
    )
    parts = spherical_clusters(front, part_maps.parts, generator)
    _put(part_maps, parts, spherical_clusters(behind, len(part_maps.directions) - part_maps.parts, generator))
    _learn(part_maps, front, behind, owner=(front @ parts.T).argmax(dim=1))


@torch.enable_grad()
def _learn(part_maps: PartMaps, front: Tensor, behind: Tensor, *, owner: Tensor) -> None:
    """Let the directions share places out: those in front to parts, the `owner` (N,), others behind."""
    seen = torch.cat([front, behind]).T[None, :, :, None].to(part_maps.directions)
    optimizer = torch.optim.Adam(part_maps.parameters(), lr=_RATE)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        sharing_loss(part_maps(seen)[0, :, :, 0].T, owner.to(seen.device)).backward()
        optimizer.step()
    optimizer.zero_grad()
    part_maps.directions.data = normalize(part_maps.directions.data, dim=1)


def sharing_loss(shares: Tensor, owner: Tensor) -> Tensor:
    """Of shares (N, K) of parts, the first rows being those of places that have an `owner`: cross-entropies.

    Of parts against backgrounds for all places, those with an owner and those without weighing alike, and of
    the owner against other parts.
    """
    tiny = torch.finfo(shares.dtype).eps
    together = shares.sum(dim=1)
    owned, free = together[: len(owner)], together[len(owner) :]
    among = shares[: len(owner)] / owned.unsqueeze(1).clamp_min(tiny)
    apart = nll_loss(among.clamp_min(tiny).log(), owner)
    return apart - owned.clamp_min(tiny).log().mean() - (1 - free).clamp_min(tiny).log().mean()


def _put(part_maps: PartMaps, parts: Tensor, behind: Tensor) -> None:
    part_maps.directions[: len(parts)] = parts.to(part_maps.directions)
    part_maps.directions[len(parts) : len(parts) + len(behind)] = behind.to(part_maps.directions)
    part_maps.offset.zero_()


def _some(vectors: Tensor, generator: torch.Generator) -> Tensor:
    return vectors[torch.randperm(len(vectors), generator=generator)[: _PLACES // 2]]


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


def _maps(
    network: DProtoNet, views: ViewSource, *, batch: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Feature maps (N, h, w, C) of plain images and their labels (N,), on the CPU."""
    was_training = network.training
    network.eval()
    keys = [(index, 0) for index in range(0, len(views), -(-len(views) // _IMAGES))]
    found = [
        (
            network.encoder.backbone(view.inputs.to(device)).float().movedim(1, -1).cpu(),
            torch.as_tensor(view.label),
        )
        for view in load(views, chunks(keys, batch), workers=0)
    ]
    network.train(was_training)
    return torch.cat([maps for maps, _ in found]), torch.cat([labels for _, labels in found])


def _border_share(members: Tensor, border: Tensor) -> Tensor:
    """Which share of a cluster (N, h, w) lies at the border; 1 of an empty one."""
    count = members.sum()
    return members[:, border].sum() / count if count else torch.tensor(1.0)
