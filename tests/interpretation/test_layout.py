"""Where the places of an image lie in a layer's output, and what only looks like places."""

import pytest
import torch
from torch import Tensor

from dprotonet.interpretation.layout import Layout, layout_of

BATCH, CHANNELS = 2, 5


def outputs(*shape: int) -> Tensor:
    return torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(0))


def planted(height: int, width: int) -> Tensor:
    """Channels first; every value says where it belongs."""
    values = torch.arange(BATCH * CHANNELS * height * width, dtype=torch.float32)
    return values.reshape(BATCH, CHANNELS, height, width)


@pytest.mark.parametrize(
    ("shape", "image", "layout"),
    [
        ((CHANNELS, 7, 7), (224, 224), Layout(7, 7, "first")),
        ((CHANNELS, 4, 6), (32, 48), Layout(4, 6, "first")),
        ((7, 7, CHANNELS), (224, 224), Layout(7, 7, "last")),
        ((4, 6, CHANNELS), (32, 48), Layout(4, 6, "last")),
        ((7, 7, 7), (224, 224), Layout(7, 7, "first")),  # could be either; channels first is the custom
        ((49, CHANNELS), (224, 224), Layout(7, 7, "tokens", 0)),
        ((197, CHANNELS), (224, 224), Layout(14, 14, "tokens", 1)),
        ((198, CHANNELS), (224, 224), Layout(14, 14, "tokens", 2)),
        ((201, CHANNELS), (224, 224), Layout(14, 14, "tokens", 5)),
        ((1 + 8 * 12, CHANNELS), (128, 192), Layout(8, 12, "tokens", 1)),
        ((24, CHANNELS), (96, 64), Layout(6, 4, "tokens", 0)),
    ],
)
def test_maps_and_tokens_are_recognised(
    shape: tuple[int, ...], image: tuple[int, int], layout: Layout
) -> None:
    assert layout_of(outputs(*shape), image, BATCH) == layout


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((CHANNELS,), (64, 64)),  # a vector
        ((CHANNELS, 1, 1), (64, 64)),  # pooled
        ((CHANNELS, 3, 3), (64, 64)),  # too small to say where
        ((3, 4, 16), (64, 64)),  # of another aspect than the image
        ((8 * 8 + 9, CHANNELS), (64, 64)),  # more tokens in front than any transformer has
        ((3 * 3 + 1, CHANNELS), (64, 64)),
        ((6 * 10 - 1, CHANNELS), (64, 256)),
        ((2, CHANNELS, 8, 8), (64, 64)),  # a video
    ],
)
def test_what_has_no_places_is_not_taken_for_a_map(shape: tuple[int, ...], image: tuple[int, int]) -> None:
    assert layout_of(outputs(*shape), image, BATCH) is None


def test_another_number_of_rows_is_no_map() -> None:
    """Swin's windows: many times as many rows as images."""
    assert layout_of(torch.zeros(8 * BATCH, 16, CHANNELS), (64, 64), BATCH) is None


@pytest.mark.parametrize("tokens", [16, 17, 65])
def test_attention_weights_are_no_map(tokens: int) -> None:
    scores = outputs(3, tokens, tokens)
    assert layout_of(scores.softmax(dim=-1), (64, 64), BATCH) is None
    assert layout_of(scores.softmax(dim=-1).bfloat16(), (64, 64), BATCH) is None


def test_a_map_of_that_shape_is_still_a_map() -> None:
    rows = outputs(3, 16, 16).softmax(dim=-1)
    assert layout_of(outputs(3, 16, 16), (64, 64), BATCH) == Layout(16, 16, "first")
    assert layout_of(2 * rows, (64, 64), BATCH) == Layout(16, 16, "first")
    signed = outputs(3, 16, 16)
    signed = signed - signed.mean(dim=-1, keepdim=True) + 1 / 16  # rows sum to 1, but not of weights
    assert layout_of(signed, (64, 64), BATCH) == Layout(16, 16, "first")


@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_every_layout_is_turned_to_channels_first(prefix: int) -> None:
    maps = planted(4, 6)
    last = maps.permute(0, 2, 3, 1)
    tokens = torch.cat([torch.full((BATCH, prefix, CHANNELS), -1.0), last.flatten(1, 2)], dim=1)
    for layout, output in (
        (Layout(4, 6, "first"), maps),
        (Layout(4, 6, "last"), last),
        (Layout(4, 6, "tokens", prefix), tokens),
    ):
        assert torch.equal(layout.channels_first(output), maps)
        assert torch.equal(layout.places(output), maps.sum(dim=1))
