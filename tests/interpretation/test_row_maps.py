"""Heatmaps of evidence rows where regions are single places, or parts: they come from the network alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.conftest import TinyBackbone
from torch import Tensor

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Parts, Points
from dprotonet.encoder.shaping import Shaping
from dprotonet.experiment.explaining.explainers import row_node
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import CosineSimilarity
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import RegionNode
from dprotonet.interpretation.randomised import cascade
from dprotonet.metrics.randomisation import rank_correlation
from dprotonet.network import DProtoNet

QUICK: Any = preset("fast", iterations=3)
OWN: Any = preset("fast", iterations=3, own_guess=True)  # parts start from their maps


def points_network(seed: int = 0) -> DProtoNet:
    """Regions are the 4 × 4 places of a map, each of which has seen its own 8 × 8 pixels alone."""
    torch.manual_seed(seed)
    prototypes = Prototypes(3, 2, 6, similarity=CosineSimilarity())
    torch.nn.init.normal_(prototypes.vectors)
    encoder = Encoder(TinyBackbone(), Shaping(8, 6), Points(6, (4, 4)))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()


def parts_network(seed: int = 0) -> DProtoNet:
    """Regions are six parts, one for each prototype of a class, found in a map of 4 × 4 places."""
    torch.manual_seed(seed)
    prototypes = Prototypes(
        2, 6, 8, similarity=CosineSimilarity(), assignment=PartRegion(torch.arange(12) % 6)
    )
    torch.nn.init.normal_(prototypes.vectors)
    encoder = Encoder(TinyBackbone(), WithParts(PartMaps(8, 6)), Parts(8, 8, 6, (4, 4)))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()


EVERY = pytest.mark.parametrize(
    ("made", "by"), [(points_network, QUICK), (parts_network, QUICK), (parts_network, OWN)]
)
Made = Callable[[], DProtoNet]


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(7))


def row_maps(network: DProtoNet, seen: Tensor, prototype: int, by: Any = QUICK) -> tuple[Tensor, Tensor]:
    """Of one prototype's row in every image: the place it was found at, and the raw map (B, H, W)."""
    with torch.no_grad():
        region = network.evidence(seen).region[:, prototype]
    found = MDM(preset=by).explain(seen, row_node(network, region))
    return region, torch.stack([one.raw for one in found])


@EVERY
def test_rows_do_not_stay_alike_when_the_network_forgets(made: Made, by: Any) -> None:
    network, seen = made(), images(6)
    *_, forgotten = cascade(network, seed=1, images=seen, stages=1)
    assert isinstance(forgotten.model, DProtoNet)
    alike = []
    for prototype in (0, 3):
        intact, random = (row_maps(one, seen, prototype, by)[1] for one in (network, forgotten.model))
        alike.append(rank_correlation(intact, random))
    again = row_maps(network, seen, 0, by)[1]
    assert (
        rank_correlation(again, row_maps(network, seen, 0, by)[1]).min() > 0.999
    )  # else nothing would be shown
    assert torch.cat(alike).nanmean() < 0.5


def test_the_hottest_point_of_a_row_is_in_its_place() -> None:
    """What the network cannot see from there cannot be hot: different places give different maps."""
    network, seen = points_network(), images(6)
    region, maps = row_maps(network, seen, 2)
    peaks = maps.flatten(1).argmax(dim=1)
    cells = peaks // 32 // 8 * 4 + peaks % 32 // 8
    assert (cells == region).sum() >= 5


@EVERY
def test_rows_at_one_place_have_one_map_whatever_their_prototype(made: Made, by: Any) -> None:
    """Nothing forces the maps of rows apart: where two prototypes are found at one place, they are equal."""
    network, seen = made(), images(1)
    region = torch.tensor([5, 5, 2])
    node = row_node(network, region, names=["prototype 0", "prototype 4", "prototype 1"])
    first, second, other = MDM(preset=by).explain(seen.expand(3, -1, -1, -1), node)
    assert torch.equal(first.raw, second.raw)
    assert rank_correlation(first.raw[None], other.raw[None]) < 0.9


def test_only_parts_start_from_their_own_maps() -> None:
    points, parts, seen = points_network(), parts_network(), images(2)
    rows = torch.tensor([1, 0])
    assert row_node(points, rows).guess(seen, rows) is None
    shares = parts.encoder.feature_map(seen)[:, -6:]
    found = row_node(parts, torch.tensor([4, 3])).guess(seen, rows)
    assert found is not None
    assert torch.equal(found, torch.stack([shares[0, 3], shares[1, 4]]))


def test_parts_that_share_a_place_are_not_drawn_apart() -> None:
    """Two parts that look for the same have the same share of every place, and one map but for rounding."""
    network, seen = parts_network(), images(1)
    assert isinstance(network.encoder.shaping, WithParts)
    directions = network.encoder.shaping.part_maps.directions.data
    directions[3] = directions[1]
    first, second = MDM(preset=OWN).explain(
        seen.expand(2, -1, -1, -1), row_node(network, torch.tensor([1, 3]))
    )
    torch.testing.assert_close(first.raw, second.raw, atol=1e-4, rtol=0)


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
