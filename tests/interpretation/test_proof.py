"""Eq. (23), proved in the appendix, where its premises hold: the more a region gives, the higher its mask.

The networks add up what regions of the image show, Eq. (21), each times its contribution, so that Eq. (22)
holds too. They read every second cell of the mask grid in both directions: as near as two cells may lie for
their bilinear enlargements not to meet. Between the cells the theorem says nothing, and nothing is asked.
"""

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.mdm import MDM, Preset, preset
from dprotonet.interpretation.nodes import CallableNode
from dprotonet.ops import upsample

GRID, CELL = 6, 4
SIDE = GRID * CELL
PLACES = [(row, column) for row in (0, 2, 4) for column in (0, 2, 4)]
CORNERS = [(row, column) for row in (1, 4) for column in (1, 4)]
CENTRES = [row * GRID + column for row, column in PLACES]
TOLERANCE = 1e-3
IMAGE = torch.ones(1, 1, SIDE, SIDE)

few = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
some = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1, width=32))
contributions = st.lists(some, min_size=len(PLACES), max_size=len(PLACES))
powers = st.sampled_from([1, 2])  # of what a region shows; the activation need not be linear in the mask


class Additive:
    """Activation = k · the sum over regions of contribution · mean of the region's pixels to a power."""

    def __init__(self, values: list[float], power: int, places: list[tuple[int, int]] = PLACES) -> None:
        self.weight, self.power = torch.zeros(SIDE, SIDE), power
        for (row, column), value in zip(places, values, strict=True):
            cell = slice(row * CELL, (row + 1) * CELL), slice(column * CELL, (column + 1) * CELL)
            self.weight[cell] = value / sum(values) / CELL**2

    def __call__(self, images: Tensor) -> Tensor:
        return (images[:, 0] ** self.power * self.weight).sum(dim=(1, 2))

    def information(self) -> Tensor:
        """I(z) in [0, 1] of the region of every mask value: the activation when it alone is shown."""
        alone = upsample(torch.eye(GRID * GRID).reshape(-1, 1, GRID, GRID), (SIDE, SIDE))
        values = self(alone * IMAGE)
        return values / values.max()

    def explained(self, by: Preset) -> Explanation:
        return MDM(preset=by).explain(IMAGE, CallableNode(self))[0]


def products(information: Tensor, mask: Tensor) -> Tensor:
    """(I(z1) - I(z2)) (m1 - m2) of all pairs of regions."""
    return (information[:, None] - information) * (mask[:, None] - mask)


def test_the_regions_do_not_meet() -> None:
    centres = upsample(torch.eye(GRID * GRID).reshape(-1, GRID, GRID)[CENTRES], (SIDE, SIDE))
    assert ((centres > 0).sum(dim=0) <= 1).all()


def test_the_network_adds_up_its_regions() -> None:
    network = Additive([0, 1, 2, 3, 4, 5, 6, 7, 8], 2)
    both = torch.zeros(3, 1, SIDE, SIDE)
    both[0, :, :CELL, 2 * CELL : 3 * CELL] = both[1, :, -2 * CELL : -CELL, :CELL] = 0.7
    both[2] = both[0] + both[1]
    first, second, together = network(both).tolist()
    assert min(first, second) > 0
    assert together == pytest.approx(first + second)


@few
@given(contributions, powers)
def test_the_paper_preset_orders_regions_by_contribution(values: list[float], power: int) -> None:
    assume(sum(values) > 0.1)
    network = Additive(values, power)
    wanted = preset("paper", sizes=(GRID,), iterations=200, rate=0.02, sparsity=0.1, reference=None)
    mask, information = network.explained(wanted).masks[GRID].flatten(), network.information()
    assert products(information, mask)[CENTRES][:, CENTRES].min() >= -TOLERANCE
    assert mask[information.argmax()] > 0.9
    assert (mask[information == 0] < 0.01).all()


@pytest.mark.parametrize("reference", [None, 1000.0])
@pytest.mark.parametrize("sparsity", [0.01, 1.0, 10.0])
def test_the_order_holds_whatever_the_sparsity(sparsity: float, reference: float | None) -> None:
    network = Additive([0, 1, 2, 3, 3, 5, 6, 0, 12], 1)
    wanted = preset("paper", sizes=(GRID,), iterations=200, rate=0.02, sparsity=sparsity, reference=reference)
    found = network.explained(wanted).masks[GRID].flatten()
    assert products(network.information(), found)[CENTRES][:, CENTRES].min() >= -TOLERANCE
    assert found.max() > found.min() + 0.5


@few
@given(contributions, powers)
def test_the_fast_preset_orders_regions_by_contribution(values: list[float], power: int) -> None:
    assume(sum(values) > 0.1)
    network = Additive(values, power)
    mask = network.explained(preset("fast", sizes=(GRID,))).masks[GRID].flatten()[CENTRES]
    information = network.information()[CENTRES]
    assert products(information, mask).min() >= -TOLERANCE
    assert (mask[information > 0.1] > mask[information == 0].max() + 0.1).all() if 0 in information else True


@few
@given(st.lists(some, min_size=4, max_size=4))
def test_all_sizes_together_keep_the_order_of_places_that_are_alike(values: list[float]) -> None:
    """Grids of other sizes cut through the regions, each region differently unless they mirror each other."""
    assume(sum(values) > 0.1)
    raw = Additive(values, 1, CORNERS).explained(preset("fast")).raw
    cells = raw.unfold(0, CELL, CELL).unfold(1, CELL, CELL).mean(dim=(2, 3))
    inside, given = torch.stack([cells[place] for place in CORNERS]), torch.tensor(values)
    assert products(given / given.max(), inside / inside.max()).min() >= -TOLERANCE
