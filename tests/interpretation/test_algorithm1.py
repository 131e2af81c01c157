"""The `paper` preset's scale: η is relative to what a blank image gives, whatever units a network has."""

import logging

import pytest
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.mdm import MDM, Preset, preset
from dprotonet.interpretation.nodes import CallableNode, ClassNode, RegionNode

SIDE = 24
PLACE = slice(6, 14), slice(9, 17)  # the square that decides, a ninth of the image
IMAGES = torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) + 0.5
SHORT = preset("paper", sizes=(6, 8), iterations=80, rate=0.03)
ABSOLUTE = preset("paper", sizes=(6, 8), iterations=80, rate=0.03, reference=None)
SCALES = (1e-3, 1.0, 1e3)


class Network(nn.Module):
    """Region vectors (B, 4, 8) of tanh features, and logits of their mean; all in units of `scale`."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.features, self.head, self.scale = nn.Conv2d(3, 8, 6, stride=6), nn.Linear(8, 3), scale

    def regions(self, images: Tensor) -> Tensor:
        feature_map = torch.tanh(self.features(images)).flatten(2)  # (B, 8, 16)
        return self.scale * feature_map.unflatten(2, (4, 4)).mean(dim=3).transpose(1, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.scale * self.head(self.regions(images).mean(dim=1) / self.scale)
        return logits


def prototype_maps(scale: float, by: Preset) -> list[Explanation]:
    network = Network(scale).eval()
    return MDM(preset=by).explain(IMAGES, RegionNode(network.regions, torch.tensor([1, 2]), model=network))


def class_maps(scale: float, by: Preset) -> list[Explanation]:
    network = Network(scale).eval()
    return MDM(preset=by).explain(IMAGES, ClassNode(network, [0, 2], probability=False))


@pytest.mark.parametrize("maps", [prototype_maps, class_maps])
def test_the_units_of_a_network_do_not_matter(maps) -> None:  # type: ignore[no-untyped-def]
    plain, larger = maps(1.0, SHORT), maps(10.0, SHORT)
    for one, other in zip(plain, larger, strict=True):
        assert (one.raw - other.raw).abs().max() < 1e-3
        assert one.raw.max() - one.raw.min() > 0.1
    literal, larger = maps(1.0, ABSOLUTE), maps(10.0, ABSOLUTE)
    assert max((one.raw - other.raw).abs().max() for one, other in zip(literal, larger, strict=True)) > 0.1


@pytest.mark.parametrize("scale", SCALES)
def test_a_place_that_decides_is_kept_and_not_everything(scale: float) -> None:
    def shown(images: Tensor) -> Tensor:
        return scale * images[(..., *PLACE)].flatten(1)

    found = MDM(preset=SHORT).explain(IMAGES, CallableNode(shown))
    truth = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    truth[PLACE] = True
    for item in found:
        kept = item.binary_mask
        assert 0.1 < kept.float().mean() < 0.4  # the square with the borders of its coarse cells
        assert (kept & truth).sum() > 0.95 * truth.sum()


def test_an_absolute_penalty_keeps_nothing_of_a_network_of_small_units() -> None:
    found = MDM(preset=ABSOLUTE).explain(
        IMAGES, CallableNode(lambda images: SCALES[0] * images[(..., *PLACE)].flatten(1))
    )
    assert not any(item.binary_mask.any() for item in found)


def test_a_node_that_does_not_depend_on_the_image(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is divided by zero: the map is empty, and the log says why."""
    node = CallableNode(lambda images: 0 * images.flatten(1)[:, :3] + 7, name="bias")
    with caplog.at_level(logging.WARNING):
        found = MDM(preset=SHORT).explain(IMAGES, node)
    for item in found:
        assert torch.isfinite(item.raw).all()
        assert not item.heatmap.any()
        assert not item.binary_mask.any()
    assert "bias is as active on a blank image as on image 0" in caplog.text


@pytest.mark.parametrize("reference", [0.0, -1.0, float("nan"), float("inf")])
def test_a_reference_is_a_number_above_zero(reference: float) -> None:
    with pytest.raises(UserError, match="reference > 0, or None"):
        preset("paper", reference=reference)
