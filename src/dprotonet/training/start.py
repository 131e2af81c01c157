"""Where prototypes start: region vectors of random training images of their class, or uniform draws."""

import torch
from torch import Tensor

from dprotonet.inference.pairing import PartRegion
from dprotonet.network import DProtoNet
from dprotonet.training.views import Key, ViewSource, chunks, derived_seed, load


@torch.no_grad()
def starting_vectors(
    network: DProtoNet, views: ViewSource, *, seed: int, batch: int = 60, device: torch.device
) -> Tensor:
    """A random region of a random own-class image for each prototype (P, D), no image twice if avoidable.

    Unstated: the paper does not say how prototypes start. Ours are not bounded to [0, 1], so ProtoPNet's
    uniform draw would start far from every region vector.
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, 0))
    keys = _drawn_images(network.prototype_class.cpu(), torch.tensor(views.labels), generator)
    was_training = network.training
    network.eval()
    pieces: list[Tensor] = []
    for view in load(views, chunks(keys, batch), workers=0):
        regions = network.encoder(view.inputs.to(device)).float()
        first = sum(len(piece) for piece in pieces)
        chosen = _drawn_regions(network, regions, first, generator).to(device)
        pieces.append(regions[torch.arange(len(regions), device=device), chosen])
    network.train(was_training)
    return torch.cat(pieces)


def _drawn_regions(network: DProtoNet, regions: Tensor, first: int, generator: torch.Generator) -> Tensor:
    """Which region each prototype from `first` on starts as: any, or that of its part."""
    if isinstance(network.prototypes.pairing, PartRegion):
        return network.prototypes.pairing.part[first : first + len(regions)]
    return torch.randint(regions.shape[1], (len(regions),), generator=generator)


def uniform_vectors(network: DProtoNet, *, seed: int) -> Tensor:
    """ProtoPNet's start (P, D): every value from U(0, 1), the range of its features; the same everywhere."""
    generator = torch.Generator().manual_seed(derived_seed(seed, 0))
    return torch.rand(network.prototypes.vectors.shape, generator=generator)


def _drawn_images(prototype_class: Tensor, labels: Tensor, generator: torch.Generator) -> list[Key]:
    keys: list[Key] = []
    for label in prototype_class.unique().tolist():
        images = (labels == label).nonzero().squeeze(1)
        wanted = int((prototype_class == label).sum())
        order = torch.randperm(len(images), generator=generator).repeat(-(-wanted // len(images)))[:wanted]
        keys += [(index, 0) for index in images[order].tolist()]
    return keys
