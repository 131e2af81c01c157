"""Bands of an image are the image: every mode and every turn, up to rounding once more or less."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from dprotonet.data import upright
from dprotonet.data.box import Box
from dprotonet.data.image import bright, shown
from dprotonet.data.upright import Upright

NOISE = np.random.default_rng(3).integers(0, 256, (53, 71, 4), dtype=np.uint8)


def of_mode(mode: str) -> Image.Image:
    if mode == "F":
        return Image.fromarray(NOISE[..., 0].astype(np.float32) * 9 - 100)
    if mode == "I;16":
        return Image.fromarray(NOISE[..., 0].astype(np.uint16) * 16)
    if mode == "P":
        image = Image.fromarray(NOISE[..., :3]).quantize(17)
        image.info["transparency"] = 3
        return image
    return Image.fromarray(NOISE, "RGBA").convert(mode)


def turned(mode: str, way: int) -> Image.Image:
    image = of_mode(mode)
    image.getexif()[0x0112] = way
    return image


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "1", "P", "CMYK", "I", "I;16", "F"])
@pytest.mark.parametrize("way", range(1, 9))
def test_bands_are_the_whole(monkeypatch: pytest.MonkeyPatch, mode: str, way: int) -> None:
    box = Box(3.3, 7.1, 44.0, 50.5)
    cases: list[tuple[tuple[int, int], Box | None]] = [((16, 16), None), ((90, 20), None), ((16, 9), box)]
    at_once = [np.asarray(Upright(turned(mode, way)).resized(size, part)) for size, part in cases]
    masks = [Upright(turned(mode, way)).truth(rule) for rule in (shown, bright)]
    for pixels, between in ((200, 10**6), (40, 10**6), (200, 0)):  # bands, pieces of rows, columns first
        monkeypatch.setattr(upright, "_PIXELS", pixels)
        monkeypatch.setattr(upright, "_BETWEEN", between)
        for (size, part), expected in zip(cases, at_once, strict=True):
            found = np.asarray(Upright(turned(mode, way)).resized(size, part), dtype=int)
            assert np.abs(found - expected).max() <= 1
        for rule, truth in zip((shown, bright), masks, strict=True):
            assert np.array_equal(Upright(turned(mode, way)).truth(rule), truth)


def test_the_turn_is_that_of_a_viewer() -> None:
    """Against Pillow's own, of a file."""
    for way in range(1, 9):
        stream = io.BytesIO()
        turned("RGB", way).save(stream, "PNG", exif=turned("RGB", way).getexif())
        image = Image.open(stream)
        own = Upright(image).resized(Upright(image).extent)
        assert np.array_equal(np.asarray(own), np.asarray(ImageOps.exif_transpose(image)))
