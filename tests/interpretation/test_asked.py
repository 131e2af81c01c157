"""What steps ask, what they cost, masks enlarged by products, and the preset that takes two steps."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.interpretation.conftest import Net
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.asked import TOGETHER, asked_in_turn
from dprotonet.interpretation.masks import MaskStack
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import CallableNode, ClassNode, ModuleNode

IN_TURN = ("keep blur", "hide black", "keep black")
SIZES = (5, 7)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, 3, 32, 40, generator=torch.Generator().manual_seed(1))


def test_steps_ask_in_turn_and_every_kind_goes_through_the_shares() -> None:
    asked = asked_in_turn(IN_TURN, 60, shares=(0.1, 0.8), softness=(0.2, 0.1))
    assert [(one.what, one.behind, one.images) for one in asked[:4]] == [
        *(("keep", "blur", 1), ("hide", "black", 1), ("keep", "black", 1), ("keep", "blur", 1))
    ]
    for what in ("keep", "hide"):
        shares = sorted(one.share for one in asked if one.what == what)
        assert 0.1 <= shares[0] < 0.15
        assert 0.75 < shares[-1] <= 0.8
        assert max(later - earlier for earlier, later in pairwise(shares)) < 0.1
    assert {one.images for one in asked_in_turn(TOGETHER, 2, shares=(0.1, 0.8), softness=(0.2, 0.1))} == {2}


def test_steps_ask_ever_more_sharply() -> None:
    asked = asked_in_turn(TOGETHER, 5, shares=(0.1, 0.8), softness=(0.4, 0.025))
    assert [one.softness for one in asked] == pytest.approx([0.4, 0.2, 0.1, 0.05, 0.025])
    (only,) = asked_in_turn(TOGETHER, 1, shares=(0.1, 0.8), softness=(0.4, 0.1))
    assert only.softness == 0.4
    steady = asked_in_turn(TOGETHER, 3, shares=(0.1, 0.8), softness=(0.05, 0.05))
    assert {one.softness for one in steady} == {0.05}


@pytest.mark.parametrize("asks", [(), ("keep",), ("show black",), ("keep white",), "keep black"])
def test_what_cannot_be_asked_is_refused(asks: Any) -> None:
    with pytest.raises(UserError, match="each step asks one of: keep black, keep blur, hide black"):
        preset("fast", asks=asks)
    with pytest.raises(UserError, match="brightness needs an exponent"):
        preset("fast", brightness=())


def test_a_step_costs_a_pass_for_every_image_it_masks(model: Net, images: Tensor) -> None:
    node = ClassNode(model, [0, 1, 2])
    one, both = (
        MDM(preset=preset("fast", asks=asks, iterations=5, sizes=SIZES)).explain(images, node)[0].passes
        for asks in (IN_TURN, TOGETHER)
    )
    assert (both.forward - one.forward, both.backward - one.backward) == (5, 5)


@pytest.mark.parametrize("asks", [("keep black",), ("hide blur",), IN_TURN])
def test_asking_either_way_finds_what_matters(asks: tuple[str, ...]) -> None:
    """One corner is all that is looked at; without a network there is no guess to find it by."""
    node = CallableNode(lambda given: given[:, :, :16, :20].mean(dim=(1, 2, 3)).tanh())
    given = torch.ones(1, 3, 32, 40)
    (found,) = MDM(preset=preset("fast", asks=asks, iterations=12)).explain(given, node)
    inside = found.raw[:14, :18].mean()
    assert inside > found.raw[20:, 24:].mean() + 0.5


@pytest.mark.parametrize("name", ["fast", "instant", "best"])
def test_without_a_guess_no_map_is_flat(name: str) -> None:
    """Every place raises the node, so every step raises every mask, those of brighter columns most."""
    node = CallableNode(lambda given: (given * torch.linspace(0.5, 1, 40)).square().mean(dim=(1, 2, 3)))
    (found,) = MDM(preset=name).explain(torch.ones(1, 3, 32, 40), node)
    columns = found.raw.mean(dim=0)
    assert columns[30:].mean() > columns[:10].mean() + 0.1
    assert (found.raw == found.raw.max()).float().mean() < 0.5


def test_instant_takes_eight_passes_at_most(model: Net, images: Tensor) -> None:
    decoder = MDM(model, preset="instant")
    predicted = decoder.explain(images)[0].passes
    assert predicted == (5, 4)
    assert decoder.explain(images, [0, 1, 2])[0].passes == (4, 4)
    vector = decoder.explain(images, ModuleNode(model, "features"))[0].passes
    assert vector == (6, 4)
    number = decoder.explain(images, ModuleNode(model, "features", channel=1))[0].passes
    assert number == (6, 4)


def test_the_mean_of_masks_is_that_of_the_enlarged_ones() -> None:
    draw = torch.Generator().manual_seed(2)
    stack = MaskStack({size: torch.rand(3, size, size, generator=draw) for size in (3, 6, 7)})
    weight = torch.randn(3, 33, 20, generator=draw)
    found = {}
    for name, mean in (("enlarged", stack.enlarged((33, 20)).mean(dim=0)), ("product", stack.mean((33, 20)))):
        found[name] = (mean, torch.autograd.grad(mean, stack.parameters, weight))
    torch.testing.assert_close(found["product"], found["enlarged"])
    for row in range(3):
        alone = MaskStack({size: vector[row : row + 1] for size, vector in stack.vectors.items()})
        assert torch.equal(alone.mean((33, 20))[0], found["product"][0][row])
