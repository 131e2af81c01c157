"""A node that knows where it looks may start the masks, if asked; any other is decoded as ever."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dprotonet.errors import ComputationError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.masks import resized
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import Node, RegionNode
from dprotonet.ops import upsample

SIDE, CELLS = 32, 4
QUICK: Any = preset("fast", iterations=3, own_guess=True)
STILL: Any = preset("fast", iterations=1, rate=0.0, own_guess=True)  # what is left is the start
UNASKED: Any = preset("fast", iterations=3)


class Planted(nn.Module):
    """Regions are what three channels see at three cells of a 4 × 4 map; the cells are planted as maps."""

    places = (5, 10, 3)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 6, 8, stride=8), nn.ReLU(), nn.Conv2d(6, 6, 1))

    def forward(self, images: Tensor) -> Tensor:
        return self.features(images).flatten(2)[:, :, self.places].transpose(1, 2)

    def maps(self, images: Tensor) -> Tensor:
        planted = torch.zeros(len(self.places), CELLS * CELLS)
        planted[range(len(self.places)), self.places] = 0.5
        return planted.view(1, -1, CELLS, CELLS).expand(len(images), -1, -1, -1)


class Unknowing:
    """The same node by the protocol alone, without a word about a guess."""

    def __init__(self, node: RegionNode) -> None:
        self.model, self._node = node.model, node
        self.target, self.direction = node.target, node.direction
        self.name, self.check = node.name, node.check

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        return self._node(images, rows)


def pictures(count: int) -> Tensor:
    return torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(3))


def decoded(by: Any, node: Node, seen: Tensor) -> list[Explanation]:
    return MDM(preset=by).explain(seen, node)


def cell(heatmap: Tensor) -> int:
    row, column = divmod(int(heatmap.argmax()), SIDE)
    return row // (SIDE // CELLS) * CELLS + column // (SIDE // CELLS)


def test_masks_start_as_the_nodes_own_map() -> None:
    network, region = Planted().eval(), torch.tensor([2, 0])
    found = decoded(STILL, RegionNode(network, region, maps=network.maps), pictures(2))
    for one, which in zip(found, region.tolist(), strict=True):
        guess = upsample(network.maps(pictures(1))[:, which], (SIDE, SIDE))
        guess = guess / guess.max()
        masks = sum(upsample(resized(guess, size).clamp(0, 1), (SIDE, SIDE)) for size in range(6, 16))
        torch.testing.assert_close(one.raw, ((0.3 + 0.7 * guess) * masks)[0])
        assert cell(one.raw) == Planted.places[which]


def test_a_planted_part_is_found_at_its_place() -> None:
    network = Planted().eval()
    node = RegionNode(network, torch.tensor([0, 1, 2]), maps=network.maps)
    found = decoded(QUICK, node, pictures(1).expand(3, -1, -1, -1))
    assert [cell(one.raw) for one in found] == list(Planted.places)


def test_it_costs_one_pass_instead_of_five_and_their_gradients() -> None:
    network, region = Planted().eval(), torch.tensor([1])
    own = decoded(QUICK, RegionNode(network, region, maps=network.maps), pictures(1))[0].passes
    searched = decoded(QUICK, RegionNode(network, region), pictures(1))[0].passes
    assert (searched.forward - own.forward, searched.backward - own.backward) == (4, 5)


def test_a_node_without_a_guess_is_decoded_as_ever_bit_by_bit() -> None:
    """Also one by somebody else that has never heard of guesses, and one that is not asked."""
    network, region = Planted().eval(), torch.tensor([1, 2])
    plain = RegionNode(network, region)
    unknowing = Unknowing(plain)
    assert isinstance(unknowing, Node)
    wanted = decoded(QUICK, unknowing, pictures(2))
    unwanted = decoded(UNASKED, RegionNode(network, region, maps=network.maps), pictures(2))
    own = decoded(QUICK, RegionNode(network, region, maps=network.maps), pictures(2))
    for one, *others in zip(wanted, decoded(QUICK, plain, pictures(2)), unwanted, strict=True):
        assert all(torch.equal(one.raw, other.raw) and one.passes == other.passes for other in others)
    assert not any(torch.equal(one.raw, other.raw) for one, other in zip(wanted, own, strict=True))


def test_a_row_alone_is_a_row_of_many() -> None:
    network, region, seen = Planted().eval(), torch.tensor([1, 2, 0]), pictures(3)
    together = decoded(QUICK, RegionNode(network, region, maps=network.maps), seen)
    for row, one in enumerate(together):
        node = RegionNode(network, region[row : row + 1], maps=network.maps)
        (alone,) = decoded(QUICK, node, seen[row : row + 1])
        assert torch.equal(alone.raw, one.raw)
        assert alone.passes == one.passes


def test_a_flat_guess_leaves_the_place_to_the_network() -> None:
    """The same everywhere is no place: all masks may move, and find what the network reads."""
    network = Planted().eval()
    node = RegionNode(network, torch.tensor([0, 1]), maps=lambda seen: torch.ones(len(seen), 3, 4, 4))
    by: Any = preset("fast", own_guess=True)
    found = decoded(by, node, pictures(1).expand(2, -1, -1, -1))
    assert [cell(one.raw) for one in found] == list(Planted.places[:2])


def test_a_map_of_zeros_says_nothing() -> None:
    """As where a network has no map to guess from: masks start at τ and all may move."""
    network = Planted().eval()
    node = RegionNode(network, torch.tensor([0]), maps=lambda seen: torch.zeros(len(seen), 3, 4, 4))
    (found,) = decoded(STILL, node, pictures(1))
    torch.testing.assert_close(found.raw, torch.full((SIDE, SIDE), 5.0))  # ten masks at τ = 0.5


def test_a_guess_that_is_no_number_is_refused() -> None:
    node = RegionNode(
        Planted().eval(), torch.tensor([0]), maps=lambda seen: torch.full((len(seen), 3, 4, 4), torch.nan)
    )
    with pytest.raises(ComputationError, match="guess of region 0 is not finite for image 0"):
        decoded(QUICK, node, pictures(1))
