"""Explainers on a device without double precision, as Apple's MPS is.

There is none here, so tensors of a subclass stand for those on such a device: what is computed from one is of
the subclass again and may not be float64; only `.cpu()` gives a plain tensor.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import CallableNode
from dprotonet.interpretation.rise import Rise, random_masks
from dprotonet.interpretation.similarity import percentile_box

IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)) + 1


class OnDevice(Tensor):
    """On a device that knows single precision only."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, given: Any = (), settings: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(function, types, given, settings or {})
        if function is Tensor.cpu:
            return result.as_subclass(Tensor)
        if isinstance(result, OnDevice) and result.dtype == torch.float64:
            raise TypeError("this device has no float64")
        return result


def on_device(values: Tensor) -> OnDevice:
    return values.as_subclass(OnDevice)


def left_half(images: Tensor) -> Tensor:
    return images[..., : images.shape[-1] // 2].mean(dim=(1, 2, 3))


def by_rise(images: Tensor) -> list[Explanation]:
    return Rise(samples=40, grid=4).explain(images, CallableNode(left_half))


def by_samples(images: Tensor) -> list[Explanation]:
    chosen = preset("sampled", samples=40, sizes=(6, 7))
    return MDM(preset=chosen).explain(images, CallableNode(left_half))


def test_such_a_device_refuses_double_precision() -> None:
    with pytest.raises(TypeError, match="no float64"):
        (on_device(IMAGES) * 2).double()
    assert (on_device(IMAGES) * 2).cpu().double().dtype == torch.float64


@pytest.mark.parametrize("explain", [by_rise, by_samples])
def test_maps_are_those_of_the_cpu(explain: Callable[[Tensor], list[Explanation]]) -> None:
    for found, expected in zip(explain(on_device(IMAGES)), explain(IMAGES), strict=True):
        assert found.raw.dtype == torch.float32
        assert (found.raw.cpu() - expected.raw).abs().max() < 1e-6
        assert (found.heatmap.cpu() - expected.heatmap).abs().max() < 1e-6


def test_rise_is_the_sum_in_double_precision() -> None:
    """As it was while the sum was taken on the device of the images."""
    masks = torch.cat(list(random_masks(40, (32, 32), grid=4, keep=0.5, seed=0)))
    for image, found in zip(IMAGES, by_rise(IMAGES), strict=True):
        scores = left_half(image * masks.unsqueeze(1))
        expected = torch.einsum("m,mhw->hw", scores.double(), masks.double()) / (40 * 0.5)
        assert (found.raw.double() - expected).abs().max() < 1e-6


def test_the_box_of_a_percentile() -> None:
    assert percentile_box(on_device(IMAGES[0, 0])) == percentile_box(IMAGES[0, 0])
