"""Images come as tensors, pictures and arrays; each means the same, or is refused in a sentence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.interpretation.conftest import Net
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.given_images import Wanted, as_images
from dprotonet.interpretation.mdm import MDM, preset

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)  # H, W, C: not square
WANTED = torch.from_numpy(PIXELS).movedim(-1, 0).float().unsqueeze(0) / 255
GREY = PIXELS[..., 0]

GIVEN: dict[str, Any] = {
    "tensor": WANTED,
    "one tensor": WANTED[0],
    "uint8, channels last": PIXELS,
    "a batch of them": PIXELS[None],
    "channels first": np.ascontiguousarray(np.moveaxis(PIXELS, -1, 0)),
    "uint16": PIXELS.astype(np.uint16) * 257,
    "floats": PIXELS / np.float64(255),
    "a view that runs backwards": PIXELS[::-1][::-1],
    "picture": Image.fromarray(PIXELS),
    "with a palette of its own colours": Image.fromarray(PIXELS).quantize(256).convert("RGB"),
    "list": [PIXELS],
    "pictures": [Image.fromarray(PIXELS)],
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_all_mean_the_same(given: Any, request: pytest.FixtureRequest) -> None:
    found = as_images(given)
    near = 0.2 if "palette" in request.node.name else 1e-6
    assert found.dtype == torch.float32
    assert found.shape == WANTED.shape
    assert (found - WANTED).abs().mean() < near


GREYS: dict[str, Any] = {
    "8 bits": Image.fromarray(GREY),
    "16 bits": Image.fromarray(GREY.astype(np.uint16) * 257),
    "32 bits": Image.fromarray(GREY.astype(np.int32) * 257),
    "floats": Image.fromarray(GREY.astype(np.float32) / 255),
    "array": GREY,
    "array with one channel": GREY[..., None],
}


@pytest.mark.parametrize("given", GREYS.values(), ids=GREYS)
def test_grey_images(given: Any) -> None:
    assert torch.allclose(as_images(given), WANTED[:, :1], atol=1e-6)
    assert torch.allclose(
        as_images(given, Wanted(channels=3)), WANTED[:, :1].expand(-1, 3, -1, -1), atol=1e-6
    )
    assert as_images(given, Wanted(channels=1)).shape[1] == 1


REFUSED: dict[str, tuple[Any, str]] = {
    "a path": ("cat.png", "str is no image; give a float tensor"),
    "bytes in a tensor": ((255 * WANTED).byte(), "not torch.uint8 .* scale and normalise it as in training"),
    "channels last in a tensor": (WANTED.movedim(1, -1), r"have their channels last; give images.movedim"),
    "whole numbers of unknown range": (
        PIXELS.astype(np.int64),
        "array of int64 .* is no image of floats, uint8",
    ),
    "truth values": (PIXELS > 9, "array of bool"),
    "two channels": (PIXELS[..., :2], r"no axis of 1, 3 or 4 channels"),
    "five axes": (PIXELS[None, None], "is no image"),
    "sizes that differ": ([PIXELS, PIXELS[:10]], r"one size, not \(3, 10, 24\) and \(3, 20, 24\)"),
    "an empty list": ([], "list of images is empty"),
    "32 bits beyond 16": (Image.fromarray(GREY.astype(np.int32) * 10**6), "beyond 16 bits"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        as_images(given)


def test_scaling_is_said_of_whole_numbers_only(caplog: pytest.LogCaptureFixture) -> None:
    as_images(PIXELS / 255)
    as_images(WANTED)
    assert not caplog.records
    as_images(PIXELS)
    assert "images of uint8 are scaled to [0, 1] and not normalised" in caplog.text


@pytest.mark.parametrize("way", ["explain", "call", "attribute"])
def test_a_picture_is_explained_like_its_tensor(way: str, model: Net) -> None:
    decoder = MDM(model, preset=preset("fast", iterations=2, sizes=(4,)))
    ways: dict[str, Callable[[Any], Tensor]] = {
        "explain": lambda given: decoder.explain(given)[0].heatmap,
        "call": lambda given: torch.from_numpy(decoder(given)[0]),
        "attribute": lambda given: decoder.attribute(given)[0, 0],
    }
    assert torch.equal(ways[way](Image.fromarray(PIXELS)), ways[way](WANTED))


def test_the_first_convolution_tells_the_channels(model: Net) -> None:
    assert Wanted.by(model) == Wanted(channels=3)
    assert Wanted.by(nn.Conv3d(1, 1, 3)) == Wanted(volumes=True)
    assert Wanted.by(nn.Linear(2, 2)) == Wanted.by(lambda images: images) == Wanted()


def test_what_a_timm_model_says_of_its_normalisation_is_used(caplog: pytest.LogCaptureFixture) -> None:
    from dprotonet.compat import import_guarded

    model = import_guarded("timm").create_model("resnet10t", num_classes=3).eval()
    wanted = Wanted.by(model)
    mean, std = (torch.tensor(model.pretrained_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
    for given in (PIXELS, Image.fromarray(PIXELS), [PIXELS]):
        assert torch.allclose(as_images(given, wanted), (WANTED - mean) / std, atol=1e-6)
    assert "as the model's pretrained_cfg says" in caplog.text
    for given in (WANTED, PIXELS / 255):  # floats are as the model wants them
        assert torch.allclose(as_images(given, wanted), WANTED, atol=1e-6)
    grey = as_images(GREY, wanted)  # three channels first, then each by its own mean
    assert torch.allclose(grey, (WANTED[:, :1].expand(-1, 3, -1, -1) - mean) / std, atol=1e-6)


@pytest.mark.parametrize(
    "known", [{"mean": None, "std": None}, {"mean": (0.5,), "std": (0.0,)}, "strange", {}]
)
def test_a_normalisation_that_is_none_is_not_used(known: object) -> None:
    model = nn.Conv2d(3, 3, 1)
    model.pretrained_cfg = known
    assert torch.equal(as_images(PIXELS, Wanted.by(model)), WANTED)
