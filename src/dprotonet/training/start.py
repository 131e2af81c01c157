"""Where prototypes start: region vectors of random training images of their class, or uniform draws.

Which region of an image is drawn by lot, or it is the one that tells its class best.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dprotonet.inference.own import members
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import DProtoNet
from dprotonet.training.views import Key, Keys, ViewSource, chunks, derived_seed, label_tensor, load

Chooser = Callable[[Tensor, int], Tensor]
"""Of regions (B, R, D), for the prototypes from a number on, which region each starts as, (B,)."""


@torch.no_grad()
def starting_vectors(
    network: DProtoNet, views: ViewSource, *, seed: int, batch: int = 60, device: torch.device
) -> Tensor:
    """A random region of a random own-class image for each prototype (P, D), no image twice if avoidable.

    Unstated: the paper does not say how prototypes start. Ours are not bounded to [0, 1], so ProtoPNet's
    uniform draw would start far from every region vector.
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, 0))

    def by_lot(regions: Tensor, first: int) -> Tensor:
        return _drawn_regions(network, regions, first, generator).to(device)

    return _vectors(network, views, by_lot, generator=generator, batch=batch, device=device)


@torch.no_grad()
def telling_vectors(
    network: DProtoNet, views: ViewSource, *, seed: int, batch: int = 60, device: torch.device
) -> Tensor:
    """The same images, and of each the region that tells its class best: the largest (z - m)·(m_c - m).

    m_c is the mean region vector of the prototype's class, m that of all classes. Once the shaping net is a
    discriminant, that is how far a place speaks for the class: a place drawn by lot is mostly background.
    """
    means = _class_means(network, views, batch=batch, device=device)
    centre = means.mean(dim=0)

    def most_telling(regions: Tensor, first: int) -> Tensor:
        owner = network.prototype_class[first : first + len(regions)]
        apart = (means[owner] - centre).unsqueeze(-1)  # (B, D, 1)
        return ((regions - centre) @ apart).squeeze(-1).argmax(dim=1)

    generator = torch.Generator().manual_seed(derived_seed(seed, 0))
    return _vectors(network, views, most_telling, generator=generator, batch=batch, device=device)


def _class_means(network: DProtoNet, views: ViewSource, *, batch: int, device: torch.device) -> Tensor:
    """The mean region vector of the plain images of each class, (C, D)."""
    classes, dimension = len(network.head.weight), network.prototypes.vectors.shape[1]
    total, count = torch.zeros(classes, dimension, device=device), torch.zeros(classes, 1, device=device)
    was_training = network.training
    network.eval()
    for view in load(views, chunks(Keys.plain(len(views)), batch), workers=0):
        labels = torch.as_tensor(view.label).to(device)
        regions = network.encoder(view.inputs.to(device)).float().mean(dim=1)
        if labels.ndim == 2:
            total += labels.T @ regions
            count += labels.sum(dim=0).unsqueeze(1)
            continue
        total.index_add_(0, labels, regions)
        count.index_add_(0, labels, torch.ones(len(labels), 1, device=device))
    network.train(was_training)
    return total / count.clamp_min(1)


def _vectors(
    network: DProtoNet,
    views: ViewSource,
    choose: Chooser,
    *,
    generator: torch.Generator,
    batch: int,
    device: torch.device,
) -> Tensor:
    keys = _drawn_images(network.prototype_class.cpu(), label_tensor(views.labels), generator)
    was_training = network.training
    network.eval()
    pieces: list[Tensor] = []
    for view in load(views, chunks(keys, batch), workers=0):
        regions = network.encoder(view.inputs.to(device)).float()
        chosen = choose(regions, sum(len(piece) for piece in pieces))
        pieces.append(regions[torch.arange(len(regions), device=device), chosen])
    network.train(was_training)
    return torch.cat(pieces)


def _drawn_regions(network: DProtoNet, regions: Tensor, first: int, generator: torch.Generator) -> Tensor:
    """Which region each prototype from `first` on starts as: any, or that of its part."""
    if isinstance(network.prototypes.assignment, PartRegion):
        return network.prototypes.assignment.part[first : first + len(regions)]
    return torch.randint(regions.shape[1], (len(regions),), generator=generator)


def uniform_vectors(network: DProtoNet, *, seed: int) -> Tensor:
    """ProtoPNet's start (P, D): every value from U(0, 1), the range of its features; the same everywhere."""
    generator = torch.Generator().manual_seed(derived_seed(seed, 0))
    return torch.rand(network.prototypes.vectors.shape, generator=generator)


def _drawn_images(prototype_class: Tensor, labels: Tensor, generator: torch.Generator) -> list[Key]:
    keys: list[Key] = []
    for label in prototype_class.unique().tolist():
        images = members(labels, label).nonzero().squeeze(1)
        wanted = int((prototype_class == label).sum())
        order = torch.randperm(len(images), generator=generator).repeat(-(-wanted // len(images)))[:wanted]
        keys += [(index, 0) for index in images[order].tolist()]
    return keys
