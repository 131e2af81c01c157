"""Protocols: names that say everything, pixels a step, and what hidden pixels become."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.controls import random_maps
from dprotonet.metrics.faithfulness import (
    DropProtocol,
    RiseProtocol,
    deletion_curves,
    explained_images,
    insertion_curves,
)

N, SIZE = 5, (12, 10)
PIXELS = SIZE[0] * SIZE[1]
PROTOCOL = RiseProtocol(steps=6)
Curves = Callable[..., Tensor]
both = pytest.mark.parametrize("curves", [deletion_curves, insertion_curves])
BLACK = torch.tensor([-2.0, -1.5, -1.0]).view(3, 1, 1)


def images() -> Tensor:
    return torch.randn(N, 3, *SIZE, generator=torch.Generator().manual_seed(0))


WEIGHTS = torch.randn(N, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def score(given: Tensor, rows: Tensor) -> Tensor:
    """A linear model for each image, squashed to (0, 1)."""
    return torch.sigmoid((given * WEIGHTS[rows]).sum(dim=(1, 2, 3)) / 10)


def test_names_of_protocols_say_everything() -> None:
    assert RiseProtocol.reference().name == "rise-224px"
    assert RiseProtocol(space="pixels").name == "rise-28-pixels"
    assert RiseProtocol(steps=None, pixels_a_step=9, kernel=3, space="pixels").name == (
        "rise-9px-blur3-sigma5-pixels"
    )
    assert DropProtocol().name == "soft-normalised"
    assert DropProtocol(keep=0.5, space="pixels").name == "keep50-pixels"
    assert DropProtocol(keep=0.125).name == "keep12.5-normalised"


def test_a_pace_is_one_of_two_and_a_space_one_of_two() -> None:
    for wrong in ({"steps": None}, {"pixels_a_step": 3}):
        with pytest.raises(ValueError, match="one of steps and pixels_a_step"):
            RiseProtocol(**wrong)
    with pytest.raises(ValueError, match="must be positive"):
        RiseProtocol(steps=None, pixels_a_step=0)
    for protocol in (RiseProtocol, DropProtocol):
        with pytest.raises(ValueError, match="one of normalised, pixels"):
            protocol(space="raw")
    with pytest.raises(ValueError, match="share of the pixels"):
        DropProtocol(keep=50)


def test_the_reference_changes_224_pixels_a_step_and_the_rest_in_the_last() -> None:
    protocol = RiseProtocol.reference()
    assert protocol.changed(224 * 224).tolist() == [224 * step for step in range(225)]
    assert protocol.changed(500).tolist() == [0, 224, 448, 500]
    assert RiseProtocol(steps=4).changed(25).tolist() == [0, 6, 12, 18, 25]


@both
def test_equal_paces_give_equal_curves(curves: Curves) -> None:
    maps = random_maps(N, SIZE, 0)
    paced = RiseProtocol(steps=None, pixels_a_step=PIXELS // 6)
    assert curves(score, images(), maps, protocol=paced).equal(
        curves(score, images(), maps, protocol=PROTOCOL)
    )


def test_a_deletion_in_pixels_ends_in_black() -> None:
    rows = torch.arange(N)
    dark = replace(PROTOCOL, space="pixels")
    curves = deletion_curves(score, images(), random_maps(N, SIZE, 0), protocol=dark, fill=BLACK)
    assert torch.allclose(curves[:, 0], score(images(), rows))
    assert torch.allclose(curves[:, -1], score(BLACK.expand(N, 3, *SIZE), rows))
    assert (curves[:, -1] != 0.5).all()


@both
def test_curves_in_pixels_are_those_of_the_network_that_takes_pixels(curves: Curves) -> None:
    """Normalising inside the network, and hiding pixels as zeros, is the same thing said otherwise."""
    std = torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1)
    maps = random_maps(N, SIZE, 0)

    def outer(given: Tensor, rows: Tensor) -> Tensor:
        return score(given / std + BLACK, rows)

    expected = curves(outer, (images() - BLACK) * std, maps, protocol=PROTOCOL)
    dark = replace(PROTOCOL, space="pixels")
    found = curves(score, images(), maps, protocol=dark, fill=BLACK)
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(found, curves(score, images(), maps, protocol=PROTOCOL), atol=1e-3)


@both
def test_a_fill_belongs_to_pixels_and_pixels_need_one(curves: Curves) -> None:
    maps, dark = random_maps(N, SIZE, 0), replace(PROTOCOL, space="pixels")
    with pytest.raises(ValueError, match="no fill is given for rise-6-pixels"):
        curves(score, images(), maps, protocol=dark)
    with pytest.raises(ValueError, match="a fill is given for rise-6;"):
        curves(score, images(), maps, protocol=PROTOCOL, fill=BLACK)


@pytest.mark.parametrize("keep", [None, 0.3])
def test_explained_images_in_pixels_are_those_of_the_pixels(keep: float | None) -> None:
    std, heat = torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1), random_maps(N, SIZE, 0)
    pixels = explained_images((images() - BLACK) * std, heat, keep=keep)
    shown = explained_images(images(), heat, keep=keep, fill=BLACK)
    assert torch.allclose(shown, pixels / std + BLACK, atol=1e-5)
    assert not torch.allclose(shown, explained_images(images(), heat, keep=keep), atol=1e-3)


@pytest.mark.parametrize("keep", [None, 0.3])
def test_zeros_are_the_usual_fill(keep: float | None) -> None:
    heat = random_maps(N, SIZE, 0)
    plain = explained_images(images(), heat, keep=keep)
    assert explained_images(images(), heat, keep=keep, fill=torch.zeros(())).equal(plain)
    with pytest.raises(ValueError, match=r"fill \(2, 1, 1\) against images"):
        explained_images(images(), heat, keep=keep, fill=torch.zeros(2, 1, 1))
