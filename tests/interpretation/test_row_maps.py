"""Heatmaps of evidence rows where regions are single places: they come from the network alone."""

from typing import Any

import torch
from tests.conftest import TinyBackbone
from torch import Tensor

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Points
from dprotonet.encoder.shaping import Shaping
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import CosineSimilarity
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import RegionNode
from dprotonet.interpretation.randomised import cascade
from dprotonet.metrics.randomisation import rank_correlation
from dprotonet.network import DProtoNet

QUICK: Any = preset("fast", iterations=3)


def points_network(seed: int = 0) -> DProtoNet:
    """Regions are the 4 × 4 places of a map, each of which has seen its own 8 × 8 pixels alone."""
    torch.manual_seed(seed)
    prototypes = Prototypes(3, 2, 6, similarity=CosineSimilarity())
    torch.nn.init.normal_(prototypes.vectors)
    encoder = Encoder(TinyBackbone(), Shaping(8, 6), Points(6, (4, 4)))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(7))


def row_maps(network: DProtoNet, seen: Tensor, prototype: int) -> tuple[Tensor, Tensor]:
    """Of one prototype's row in every image: the place it was found at, and the raw map (B, H, W)."""
    with torch.no_grad():
        region = network.evidence(seen).region[:, prototype]
    found = MDM(preset=QUICK).explain(seen, RegionNode(network.encoder, region))
    return region, torch.stack([one.raw for one in found])


def test_rows_do_not_stay_alike_when_the_network_forgets() -> None:
    network, seen = points_network(), images(6)
    *_, forgotten = cascade(network, seed=1, images=seen, stages=1)
    assert isinstance(forgotten.model, DProtoNet)
    alike = []
    for prototype in (0, 3):
        intact, random = row_maps(network, seen, prototype)[1], row_maps(forgotten.model, seen, prototype)[1]
        alike.append(rank_correlation(intact, random))
    again = row_maps(network, seen, 0)[1]
    assert rank_correlation(again, row_maps(network, seen, 0)[1]).min() > 0.999  # else nothing would be shown
    assert torch.cat(alike).nanmean() < 0.5


def test_the_hottest_point_of_a_row_is_in_its_place() -> None:
    """What the network cannot see from there cannot be hot: different places give different maps."""
    network, seen = points_network(), images(6)
    region, maps = row_maps(network, seen, 2)
    peaks = maps.flatten(1).argmax(dim=1)
    cells = peaks // 32 // 8 * 4 + peaks % 32 // 8
    assert (cells == region).sum() >= 5


def test_rows_at_one_place_have_one_map_whatever_their_prototype() -> None:
    """Nothing forces the maps of rows apart: where two prototypes are found at one place, they are equal."""
    network, seen = points_network(), images(1)
    region = torch.tensor([5, 5, 9])
    node = RegionNode(network.encoder, region, names=["prototype 0", "prototype 4", "prototype 1"])
    first, second, other = MDM(preset=QUICK).explain(seen.expand(3, -1, -1, -1), node)
    assert torch.equal(first.raw, second.raw)
    assert rank_correlation(first.raw[None], other.raw[None]) < 0.9


def test_a_row_needs_nothing_but_a_callable() -> None:
    """No module, no layer, no map of places: images in, region vectors out."""
    network, seen = points_network(), images(2)
    region = torch.tensor([3, 12])
    wanted = MDM(preset=QUICK).explain(seen, RegionNode(network.encoder, region))

    def closed(pixels: Tensor) -> Tensor:
        vectors: Tensor = network.encoder(pixels)
        return vectors

    for parameter in network.parameters():
        parameter.requires_grad_(False)
    found = MDM(preset=QUICK).explain(seen, RegionNode(closed, region))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one.raw, other.raw, atol=1e-5)
