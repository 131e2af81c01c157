"""Whatever comes in: a defined map, with a warning if it is empty, or an error that says what is wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.interpretation.conftest import Net
from torch import Tensor, nn

from dprotonet.errors import ComputationError, UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.cam import CAM, CAM_CLASSES
from dprotonet.interpretation.kept_activation import KeptActivation
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import ArrayNode, CallableNode, ClassNode, RegionNode
from dprotonet.interpretation.rise import Rise

CLASSES = 4
PRESETS = {
    "paper": preset("paper", iterations=5, sizes=(4, 7), sparsity=0.1),
    "fast": preset("fast", iterations=5, sizes=(4, 7)),
    "sampled": preset("sampled", samples=30, sizes=(4, 7)),
}
WITH_GRADIENT = ["paper", "fast"]
Explain = Callable[..., list[Explanation]]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0)) + 0.1


def explain(name: str, model: nn.Module | None) -> Explain:
    if name in CAM_CLASSES:
        assert model is not None
        return CAM(model, name).explain
    if name == "rise":
        return Rise(model, samples=30).explain
    return MDM(model, preset=PRESETS[name]).explain


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("dprotonet.") and record.levelname == "WARNING"
    ]


def assert_defined(found: list[Explanation], caplog: pytest.LogCaptureFixture) -> None:
    """Finite and in [0, 1]; and if nothing is shown, that was said, of this image."""
    for row, item in enumerate(found):
        assert torch.isfinite(item.raw).all()
        assert torch.isfinite(item.heatmap).all()
        assert item.heatmap.min() >= 0
        assert item.heatmap.max() <= 1
        shown = bool(item.heatmap.max() > 0)
        assert shown or any(f"image {row}" in line and "empty" in line for line in warnings(caplog))


every = pytest.mark.parametrize("name", [*PRESETS, *CAM_CLASSES, "rise"])
every_masking = pytest.mark.parametrize("name", [*PRESETS, "rise"])


# ── images that show nothing ─────────────────────────────────────────────────────────────────────────


@every
@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1e-20])
def test_constant_images(
    name: str, value: float, model: Net, images: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    assert_defined(explain(name, model)(torch.full_like(images, value)), caplog)


@every_masking
def test_a_blank_image_has_an_empty_map_and_its_neighbour_has_not(
    name: str, images: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    images[0] = 0
    node = CallableNode(lambda given: (given[:, :, :12] ** 2).mean(dim=(1, 2, 3)), name="upper half")
    found = explain(name, None)(images, node)
    assert_defined(found, caplog)
    assert found[0].heatmap.max() == 0
    assert found[1].heatmap.max() == 1
    assert any("image 0" in line and "upper half" in line for line in warnings(caplog))
    assert not any("image 1" in line for line in warnings(caplog))


@every_masking
def test_a_node_that_ignores_the_image(name: str, images: Tensor, caplog: pytest.LogCaptureFixture) -> None:
    weight = torch.ones(1, requires_grad=True)
    ignoring: list[Callable[[Tensor], Tensor]] = [
        lambda given: 0 * given.mean(dim=(1, 2, 3)) + 7,
        lambda given: weight.expand(len(given)),  # it has a gradient, but not for the image
    ]
    for function in ignoring:
        caplog.clear()
        found = explain(name, None)(images, CallableNode(function, name="constant"))
        assert_defined(found, caplog)
        assert all(item.heatmap.max() == 0 for item in found)
        assert sum("constant" in line for line in warnings(caplog)) >= 2
    assert weight.grad is None


def test_a_class_that_is_certain_of_everything(caplog: pytest.LogCaptureFixture, images: Tensor) -> None:
    """Its probability is 1, with or without an image."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    model[2].bias.data = torch.tensor([200.0, 0.0])
    for name in ("fast", "sampled"):
        for label in (0, 1):
            found = explain(name, model)(images, ClassNode(model, [label] * 2))
            assert_defined(found, caplog)
        assert any("as active on a blank image as on image 1" in line for line in warnings(caplog))


@pytest.mark.parametrize("scale", [1e-30, 1e-40, 1e15])
@pytest.mark.parametrize("components", [1, 3])
def test_very_small_and_very_large_activations(
    scale: float, components: int, images: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    node = CallableNode(lambda given: scale * given.mean(dim=(2, 3))[:, :components])
    share = KeptActivation.of(MaskingTask(images, node, batch=2))
    assert torch.isfinite(share.scale).all()
    assert_defined(explain("fast", None)(images, node), caplog)


def test_nothing_above_the_threshold(model: Net, images: Tensor, caplog: pytest.LogCaptureFixture) -> None:
    strict = preset("paper", iterations=60, sizes=(4, 7), sparsity=1e6)
    found = MDM(model, preset=strict).explain(images, ClassNode(model, [1, 2], probability=False))
    assert_defined(found, caplog)
    for row, item in enumerate(found):
        assert item.heatmap.max() == 0
        assert any(f"image {row} (logit of class {row + 1}) is empty" in line for line in warnings(caplog))


def test_a_flat_map_is_not_blown_up_to_noise(images: Tensor, caplog: pytest.LogCaptureFixture) -> None:
    """Bilinear enlargement of equal values differs in the last digit, which scaling to [0, 1] would show."""
    node = CallableNode(lambda given: 0 * given.mean(dim=(1, 2, 3)))
    found = MDM(preset=preset("paper", iterations=7, reference=None)).explain(images, node)
    assert found[0].raw.min() > 3  # above the threshold everywhere
    assert all(item.heatmap.max() == 0 for item in found)
    assert len(warnings(caplog)) == 2


# ── values that are none ─────────────────────────────────────────────────────────────────────────────


@every
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_images_with_values_that_are_not_finite(name: str, value: float, model: Net, images: Tensor) -> None:
    images[1, 2, 3, 4] = value
    with pytest.raises(UserError, match="image 1 holds NaN or infinite values"):
        explain(name, model)(images)


@every_masking
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_activation_that_is_not_finite(name: str, value: float, images: Tensor) -> None:
    """For one of the images, and only when it is masked."""
    images[1, 0] = 9
    whole = images[1].mean()

    def broken(given: Tensor) -> Tensor:
        level = given.mean(dim=(1, 2, 3))
        ill = (given.amax(dim=(1, 2, 3)) > 3) & (level < 0.99 * whole)
        return torch.where(ill, value, level)

    with pytest.raises(ComputationError, match="activation of broken is not finite for image 1"):
        explain(name, None)(images, broken)


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_a_gradient_that_is_not_finite(name: str, images: Tensor) -> None:
    images[1, :, 5, 5] = 0

    def rooted(given: Tensor) -> Tensor:
        return given.sqrt().mean(dim=(1, 2, 3))

    with pytest.raises(ComputationError, match="gradient of rooted is not finite for image 1"):
        explain(name, None)(images, rooted)


@every_masking
def test_an_overflow_in_half_precision(name: str, images: Tensor) -> None:
    model = Net().eval()
    model.head.bias.data += 6e4
    with pytest.raises(ComputationError, match="use float32 if the model is in half precision"):
        explain(name, model.half())(images, ClassNode(model, [0, 1], probability=False))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_masking
def test_models_and_images_in_half_precision(
    name: str, dtype: torch.dtype, images: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    model = Net().eval().to(dtype)
    assert_defined(explain(name, model)(images), caplog)
    assert_defined(explain(name, model)(images.to(dtype)), caplog)
    assert all(parameter.dtype == dtype for parameter in model.parameters())


@pytest.mark.parametrize("name", CAM_CLASSES)
def test_cams_ask_for_a_model_in_full_precision(name: str, images: Tensor) -> None:
    with pytest.raises(
        UserError, match=f"{name.replace('+', '.')} needs a model in float32, not torch.bfloat16"
    ):
        explain(name, Net().eval().bfloat16())(images)


# ── shapes and types ─────────────────────────────────────────────────────────────────────────────────


@every
def test_images_of_bytes(name: str, model: Net, images: Tensor) -> None:
    with pytest.raises(
        UserError, match=r"must be a float tensor \(N, C, H, W\).*not torch.uint8 \(2, 3, 24, 24\)"
    ):
        explain(name, model)((255 * images).byte())


@every
def test_no_images(name: str, model: Net, images: Tensor) -> None:
    with pytest.raises(UserError, match="str is no image; give a float tensor"):
        explain(name, model)("cat.png")
    with pytest.raises(UserError, match="hold nothing to explain"):
        explain(name, model)(images[:0])


def test_the_three_ways_in_say_the_same(model: Net, images: Tensor) -> None:
    decoder, one = MDM(model, preset=PRESETS["fast"]), images[0, 0]
    ways: list[Callable[[Tensor], Any]] = [
        decoder,
        decoder.attribute,
        decoder.explain,
        lambda given: decoder.attribute(given, 0),
        lambda given: decoder(given, [lambda output: output[0]]),
        lambda given: decoder.explain(given, lambda inner: inner.mean(dim=(1, 2, 3))),
    ]
    for way in ways:
        with pytest.raises(UserError, match=r"must be a float tensor \(N, C, H, W\)"):
            way(one)


@every
@pytest.mark.parametrize("label", [CLASSES, -1])
def test_a_class_out_of_range(name: str, label: int, model: Net, images: Tensor) -> None:
    with pytest.raises(UserError, match=f"no class {label}; the model has classes 0 to {CLASSES - 1}"):
        explain(name, model)(images, ClassNode(model, [0, label]))


@every
@pytest.mark.parametrize("size", [(8, 8), (8, 12)])
def test_images_smaller_than_the_masks(
    name: str, size: tuple[int, int], model: Net, caplog: pytest.LogCaptureFixture
) -> None:
    images = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    if name in PRESETS:
        change = {"samples": 30} if name == "sampled" else {"iterations": 5}
        found = MDM(model, preset=preset(name, **change)).explain(images)  # masks of 6 to 15
    else:
        found = explain(name, model)(images)
    assert_defined(found, caplog)
    assert found[0].heatmap.shape == size


@every_masking
def test_images_of_hardly_a_pixel(name: str, caplog: pytest.LogCaptureFixture) -> None:
    node = CallableNode(lambda given: given[..., 0].mean(dim=(1, 2)))
    for size in ((1, 1), (1, 3), (2, 2)):
        images = torch.rand(2, 1, *size, generator=torch.Generator().manual_seed(0)) + 0.1
        assert_defined(explain(name, None)(images, node), caplog)


# ── nodes that do not fit ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_a_node_without_gradient_is_sent_to_the_sampled_preset(name: str, images: Tensor) -> None:
    for node in (
        ArrayNode(lambda given: np.asarray(given).mean(axis=(1, 2, 3))),
        CallableNode(lambda given: given.detach().mean(dim=(1, 2, 3))),
    ):
        with pytest.raises(UserError, match="no gradient; explain it by the preset 'sampled'"):
            explain(name, None)(images, node)
        assert explain("sampled", None)(images, node)[0].heatmap.max() == 1
        assert explain("rise", None)(images, node)[0].heatmap.max() == 1


@every
def test_another_number_of_targets(name: str, model: Net, images: Tensor) -> None:
    with pytest.raises(UserError, match="3 targets for 2 images"):
        explain(name, model)(images, ClassNode(model, [0, 1, 2]))


@every_masking
def test_another_number_of_regions(name: str, images: Tensor) -> None:
    node = RegionNode(lambda given: given.flatten(2).transpose(1, 2), torch.tensor([0]))
    with pytest.raises(UserError, match="1 prototypes for 2 images"):
        explain(name, None)(images, node)


def test_cams_explain_classes_of_networks_with_places(model: Net, images: Tensor) -> None:
    with pytest.raises(UserError, match="unknown method 'cam'; known: gradcam"):
        CAM(model, "cam")
    with pytest.raises(UserError, match="gradcam explains classes only; use MDM"):
        CAM(model).explain(images, CallableNode(lambda given: given.mean(dim=(1, 2, 3))))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 3))
    with pytest.raises(UserError, match="needs a layer with places and this model has none; use MDM"):
        CAM(flat).explain(images)


def test_a_cam_that_nothing_speaks_for_says_so(images: Tensor, caplog: pytest.LogCaptureFixture) -> None:
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    layers[4].weight.data = torch.tensor([[1.0], [-1.0]]).expand(2, 4).clone()
    found = CAM(layers.eval()).explain(images, ClassNode(layers, [0, 1]))
    assert_defined(found, caplog)
    assert [item.heatmap.max().item() for item in found] == [pytest.approx(1), 0]
    assert [line for line in warnings(caplog) if "image 1 (logit of class 1) is empty" in line]


@every
def test_a_model_that_gives_no_logits(name: str, images: Tensor) -> None:
    with pytest.raises(UserError, match=r"not logits \(B, C\)"):
        explain(name, nn.Conv2d(3, 4, 3))(images)
