"""Convolutions of one pixel by oneDNN: values and gradients of PyTorch's own, only where they belong."""

import pytest
import torch
from torch import nn

from dprotonet.interpretation.folding import folded, seen_pairs
from dprotonet.interpretation.pointwise import Pointwise, is_pointwise


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(1, 6, 9, 7), (3, 6, 1, 1), (2, 6, 16, 16)])
def test_values_and_gradients_are_those_of_the_convolution(
    layout: torch.memory_format, size: tuple[int, ...]
) -> None:
    convolution = nn.Conv2d(6, 4, 1).requires_grad_(False)
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(size, generator=draw).contiguous(memory_format=layout).requires_grad_(True)
    usual, quick = convolution(images), Pointwise(convolution.weight, convolution.bias)(images)
    torch.testing.assert_close(quick, usual)
    weight = torch.randn(usual.shape, generator=draw)
    for one, other in zip(
        torch.autograd.grad(usual, images, weight), torch.autograd.grad(quick, images, weight), strict=True
    ):
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize(
    ("options", "quick"),
    [
        ({"kernel_size": 1}, True),
        ({"kernel_size": 1, "bias": False}, True),
        ({"kernel_size": 1, "padding": "valid"}, True),
        ({"kernel_size": 1, "stride": 2}, False),
        ({"kernel_size": 1, "padding": 1}, False),
        ({"kernel_size": 1, "groups": 2}, False),
        ({"kernel_size": 3}, False),
    ],
)
def test_which_convolutions_are_pointwise(options: dict[str, object], quick: bool) -> None:
    assert is_pointwise(nn.Conv2d(6, 4, **options)) is quick  # type: ignore[arg-type]


def test_without_onednn_pytorch_keeps_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        assert not is_pointwise(nn.Conv2d(6, 4, 1))


def test_a_folded_network_takes_it_for_single_precision_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4)).eval().requires_grad_(False)
    images, asked = torch.randn(2, 6, 8, 8), []
    usual = Pointwise.__call__
    monkeypatch.setattr(Pointwise, "__call__", lambda self, given: asked.append(1) or usual(self, given))
    with torch.no_grad(), seen_pairs(model) as pairs:
        plain = model(images)
    with torch.no_grad(), folded(pairs):
        torch.testing.assert_close(model(images), plain)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model(images).dtype == torch.bfloat16
    assert len(asked) == 1
