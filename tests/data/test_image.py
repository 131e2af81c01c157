"""Every kind of file shows in the tensor what a person sees in a viewer; broken files say why."""

import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dprotonet.data.box import Box
from dprotonet.data.image import (
    UnreadableImage,
    image_from_pil,
    probed_extent,
    read_image,
    read_mask,
    read_picture,
)
from dprotonet.errors import UserError

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)
SIDE = 8


def colour(image: torch.Tensor, row: int = 0, column: int = 0) -> tuple[int, ...]:
    return tuple(image[:, row, column].tolist())


def saved(path: Path, image: Image.Image, **options: object) -> torch.Tensor:
    image.save(path, **options)
    return read_image(path, size=SIDE)


def halves(left: int, right: int, dtype: type) -> np.ndarray:
    values = np.full((SIDE, SIDE), left, dtype=dtype)
    values[:, SIDE // 2 :] = right
    return values


def test_plain_colour_keeps_channels_rows_and_columns(tmp_path: Path) -> None:
    picture = Image.new("RGB", (SIDE, SIDE), RED)
    picture.paste(GREEN, (SIDE // 2, 0, SIDE, SIDE // 2))  # top right
    image = saved(tmp_path / "a.png", picture)
    assert image.shape == (3, SIDE, SIDE)
    assert image.dtype == torch.uint8
    assert image.is_contiguous()
    assert [colour(image, 0, 0), colour(image, 0, -1), colour(image, -1, -1)] == [RED, GREEN, RED]


@pytest.mark.parametrize(
    ("mode", "fill", "expected"),
    [
        ("L", 90, (90, 90, 90)),
        ("1", 1, WHITE),
        ("LA", (90, 255), (90, 90, 90)),
        ("LA", (0, 0), WHITE),
        ("RGBA", (255, 0, 0, 255), RED),
        ("RGBA", (0, 0, 0, 0), WHITE),
        ("RGBA", (0, 0, 0, 51), (204, 204, 204)),
    ],
)
def test_simple_modes(tmp_path: Path, mode: str, fill: object, expected: tuple[int, ...]) -> None:
    assert colour(saved(tmp_path / "a.png", Image.new(mode, (SIDE, SIDE), fill))) == expected


def test_palette_shows_its_colours_and_white_where_transparent(tmp_path: Path) -> None:
    picture = Image.fromarray(halves(0, 1, np.uint8)).convert("L").copy()
    picture.putpalette([*BLUE, *GREEN])
    plain = saved(tmp_path / "plain.png", picture)
    assert (colour(plain), colour(plain, 0, -1)) == (BLUE, GREEN)
    cut = saved(tmp_path / "cut.png", picture, transparency=0)
    assert (colour(cut), colour(cut, 0, -1)) == (WHITE, GREEN)


def test_cmyk_jpeg(tmp_path: Path) -> None:
    image = saved(tmp_path / "a.jpg", Image.new("CMYK", (64, 64), (0, 255, 255, 0)), quality=95)
    np.testing.assert_allclose(colour(image), RED, atol=6)


@pytest.mark.parametrize(
    ("white", "half", "suffix"), [(65535, 32768, "png"), (4095, 2048, "png"), (255, 128, "tif")]
)
def test_sixteen_bit_goes_by_the_bits_in_use(tmp_path: Path, white: int, half: int, suffix: str) -> None:
    picture = Image.fromarray(halves(half, white, np.uint16))
    assert picture.mode.startswith("I;16")
    image = saved(tmp_path / f"a.{suffix}", picture)
    assert (colour(image), colour(image, 0, -1)) == ((128, 128, 128), WHITE)


def test_deep_integers_of_one_detector_stay_comparable(tmp_path: Path) -> None:
    bright = saved(tmp_path / "bright.png", Image.fromarray(halves(1000, 4000, np.uint16)))
    dim = saved(tmp_path / "dim.png", Image.fromarray(halves(1000, 2500, np.uint16)))
    assert colour(bright) == colour(dim)


def test_thirty_two_bit_and_negative_integers(tmp_path: Path) -> None:
    counts = saved(tmp_path / "counts.tif", Image.fromarray(halves(0, 2**20 - 1, np.int32)))
    assert (colour(counts), colour(counts, 0, -1)) == (BLACK, WHITE)
    hounsfield = saved(tmp_path / "ct.tif", Image.fromarray(halves(-1024, 3071, np.int32)))
    assert (colour(hounsfield), colour(hounsfield, 0, -1)) == (BLACK, WHITE)


@pytest.mark.parametrize(("left", "right", "grey"), [(0.2, 1.0, 51), (51.0, 255.0, 51), (-1.0, 1.0, 0)])
def test_float_tiff(tmp_path: Path, left: float, right: float, grey: int) -> None:
    values = halves(0, 0, np.float32)
    values[:, : SIDE // 2], values[:, SIDE // 2 :] = left, right
    image = saved(tmp_path / "a.tif", Image.fromarray(values))
    assert (colour(image), colour(image, 0, -1)) == ((grey,) * 3, WHITE)


def test_float_without_a_number_is_black() -> None:
    values = np.ones((SIDE, SIDE), dtype=np.float32)
    values[0, 0] = np.nan
    image = image_from_pil(Image.fromarray(values), size=SIDE)
    assert (colour(image), colour(image, -1, -1)) == (BLACK, WHITE)
    assert image_from_pil(Image.fromarray(values * np.nan), size=SIDE).max() == 0


# Where EXIF says the first row and first column of the stored pixels are to be shown.
_RED_CORNER = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1), 8: (-1, 0)}


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int, suffix: str) -> None:
    stored = Image.new("RGB", (64, 32), BLACK)
    stored.paste(RED, (0, 0, 32, 16))  # the corner of the first row and first column
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = saved(tmp_path / f"a.{suffix}", stored, exif=exif)
    corners = {(row, column): colour(image, row, column)[0] > 200 for row in (0, -1) for column in (0, -1)}
    assert [corner for corner, red in corners.items() if red] == [_RED_CORNER[orientation]]


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_extent_and_crop_are_of_the_upright_image(tmp_path: Path, orientation: int, suffix: str) -> None:
    stored = Image.new("RGB", (640, 320), BLACK)
    stored.paste(RED, (0, 0, 320, 160))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{suffix}"
    stored.save(path, exif=exif)
    assert probed_extent(path.read_bytes(), name="a") == ((640, 320) if orientation < 5 else (320, 640))
    row, column = _RED_CORNER[orientation]
    left, top = 0.5 * abs(column), 0.5 * abs(row)
    red = read_image(path, size=SIDE, crop=Box(left, top, left + 0.5, top + 0.5))
    assert red[0, 1:-1, 1:-1].min() > 200
    black = read_image(path, size=SIDE, crop=Box(0.5 - left, 0.5 - top, 1 - left, 1 - top))
    assert black[0, 1:-1, 1:-1].max() < 50


def test_exif_turns_across_are_told_apart() -> None:
    stored = Image.new("RGB", (64, 32), BLACK)
    stored.paste(RED, (0, 0, 64, 8))  # first row: shown at the right when turned by 6
    stored.getexif()[0x0112] = 6
    image = image_from_pil(stored, size=SIDE)
    assert [colour(image, row, -1) for row in (0, -1)] == [RED, RED]
    assert [colour(image, row, 0) for row in (0, -1)] == [BLACK, BLACK]


def test_whole_image_is_squashed_not_cropped(tmp_path: Path) -> None:
    picture = Image.new("RGB", (400, 40), BLACK)
    picture.paste(RED, (0, 0, 100, 40))
    picture.paste(BLUE, (300, 0, 400, 40))
    image = saved(tmp_path / "a.png", picture)
    assert (colour(image), colour(image, 4, 4), colour(image, -1, -1)) == (RED, BLACK, BLUE)


def test_shrinking_is_antialiased(tmp_path: Path) -> None:
    stripes = np.zeros((160, 160), dtype=np.uint8)
    stripes[::2] = 255
    image = saved(tmp_path / "a.png", Image.fromarray(stripes))
    assert (image.float() - 127.5).abs().max() < 8


def test_large_jpeg_decoded_at_reduced_scale_looks_the_same(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 2000, dtype=np.uint8)
    picture = Image.fromarray(np.broadcast_to(ramp, (2000, 2000)).copy())
    picture.save(tmp_path / "a.jpg", quality=95)
    reduced = read_image(tmp_path / "a.jpg", size=100).int()
    assert (reduced - image_from_pil(picture, size=100).int()).abs().max() <= 3


def test_large_jpeg_is_never_decoded_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[tuple[int, int]] = []
    resize = Image.Image.resize

    def watched(image: Image.Image, *arguments: Any) -> Image.Image:
        decoded.append(image.size)
        return resize(image, *arguments)

    monkeypatch.setattr(Image.Image, "resize", watched)
    for side in (1600, 199):
        Image.new("RGB", (side, side)).save(tmp_path / "a.jpg")
        read_image(tmp_path / "a.jpg", size=100)
    assert decoded == [(200, 200), (199, 199)]


def textured(width: int, height: int) -> Image.Image:
    """Waves of many lengths and edges, as a photograph has."""
    across, down = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin(20 * across**2 + 9 * down), np.cos(31 * down - 7 * across), np.sin(60 * across * down)]
    pixels = 127 + 70 * np.stack(waves, axis=-1)
    pixels[(across - 0.8) ** 2 + (down - 0.85) ** 2 < 0.01] = (250, 20, 20)
    return Image.fromarray(pixels.astype(np.uint8))


def full_decode(path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> np.ndarray:
    with monkeypatch.context() as patch:
        patch.setattr("PIL.JpegImagePlugin.JpegImageFile.draft", lambda *_: None)
        return read_image(path, **settings).numpy().astype(int)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("crop", [None, Box(0.05, 0.3, 0.95, 0.98), Box(0.5, 0.0, 1.0, 0.6)])
def test_reduced_decode_is_the_full_decode_to_the_pixel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orientation: int, crop: Box | None
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    textured(905, 529).save(tmp_path / "a.jpg", quality=95, exif=exif)  # one and three more than whole eights
    reduced = read_image(tmp_path / "a.jpg", size=50, crop=crop).numpy().astype(int)
    gap = np.abs(reduced - full_decode(tmp_path / "a.jpg", monkeypatch, size=50, crop=crop))
    assert gap.any()  # it was reduced
    assert gap.mean() < 1.0
    assert np.percentile(gap, 99) <= 8


def test_reduced_decode_of_cmyk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    textured(809, 803).convert("CMYK").save(tmp_path / "a.jpg", quality=95)
    reduced = read_image(tmp_path / "a.jpg", size=60).numpy().astype(int)
    gap = np.abs(reduced - full_decode(tmp_path / "a.jpg", monkeypatch, size=60))
    assert gap.any()
    assert gap.mean() < 1.0


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.3, 0.07])
def test_a_crop_is_never_decoded_smaller_than_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, orientation: int, share: float
) -> None:
    boxes: list[Box] = []
    resize = Image.Image.resize

    def watched(image: Image.Image, size: Any, how: Any, box: Box) -> Image.Image:
        boxes.append(box)
        return resize(image, size, how, box)

    exif = Image.Exif()
    exif[0x0112] = orientation
    textured(1601, 900).save(tmp_path / "a.jpg", exif=exif)
    monkeypatch.setattr(Image.Image, "resize", watched)
    read_image(tmp_path / "a.jpg", size=40, crop=Box(0.0, 0.0, share, 1.0))
    (box,) = boxes
    stored = (1601, 900) if orientation == 1 else (900, 1601)
    needed = min(stored[0] * share / 40, stored[1] / 40)  # how often the square fits into the original crop
    scale = next(s for s in (8, 4, 2, 1) if s <= max(needed, 1))
    assert box.right - box.left == pytest.approx(stored[0] * share / scale)
    assert box.bottom - box.top == pytest.approx(stored[1] / scale)


@pytest.mark.parametrize(
    ("size", "shown"),
    [((40, 20), (20, 40)), ((4000, 2000), (50, 100)), ((2000, 4000), (100, 50)), ((5000, 1), (1, 100))],
)
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_picture_for_people_keeps_its_proportions(
    tmp_path: Path, size: tuple[int, int], shown: tuple[int, int], suffix: str
) -> None:
    Image.new("RGB", size, RED).save(tmp_path / f"a{suffix}")
    picture = read_picture(tmp_path / f"a{suffix}", longest=100)
    assert picture.shape == (3, *shown)
    assert picture.dtype == torch.uint8


def test_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (SIDE, SIDE), shade) for shade in (RED, BLUE)]
    image = saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert colour(image) == RED


def damaged(path: Path, kind: str) -> Path:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"hello, no image", "truncated": whole[: len(whole) // 2]}[kind])
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "gif", "webp", "bmp", "ppm"])
@pytest.mark.parametrize("kind", ["empty", "text", "truncated"])
def test_broken_files_are_named_with_the_reason(tmp_path: Path, kind: str, suffix: str) -> None:
    path = damaged(tmp_path / f"broken.{suffix}", kind)
    with pytest.raises(UnreadableImage, match=f"broken.{suffix}") as caught:
        read_image(path, size=SIDE)
    assert isinstance(caught.value, UserError)
    assert caught.value.reason
    assert {"empty": "empty", "text": "not an image"}.get(kind, "") in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match=r"gone\.png: No such file"):
        read_image(tmp_path / "gone.png", size=SIDE)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadableImage, match="a pipe or a device"):
        read_image(tmp_path / "pipe.jpg", size=8)


def test_decompression_bomb_is_refused(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0))
    path = tmp_path / "bomb.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")
    )
    with pytest.raises(UnreadableImage, match=r"bomb\.png.*decompression bomb"):
        read_image(path, size=SIDE)


def test_the_exception_survives_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(UnreadableImage("cannot read a.png", reason="empty")))
    assert (str(error), error.reason) == ("cannot read a.png", "empty")
    assert str(UnreadableImage("only a message")) == "only a message"


@pytest.mark.parametrize(("mode", "nothing", "something"), [
    ("1", 0, 1), ("L", 0, 1), ("L", 0, 255), ("I;16", 0, 1), ("RGB", BLACK, (0, 0, 1)),
    ("RGBA", (255, 255, 255, 0), (1, 0, 0, 255)), ("LA", (0, 255), (9, 255)),
])  # fmt: skip
def test_mask_is_true_where_something_shows(
    tmp_path: Path, mode: str, nothing: object, something: object
) -> None:
    picture = Image.new(mode, (SIDE * 2, SIDE), nothing)
    picture.paste(something, (0, 0, SIDE, SIDE))
    picture.save(tmp_path / "mask.png")
    mask = read_mask(tmp_path / "mask.png", size=SIDE)
    assert (mask.dtype, mask.shape) == (torch.bool, (SIDE, SIDE))
    assert mask[:, : SIDE // 2].all()
    assert not mask[:, SIDE // 2 :].any()


def test_palette_mask_goes_by_colour_not_by_number(tmp_path: Path) -> None:
    picture = Image.fromarray(halves(0, 1, np.uint8))
    picture.putpalette([*WHITE, *BLACK])
    picture.save(tmp_path / "mask.png")
    mask = read_mask(tmp_path / "mask.png", size=SIDE)
    assert mask[:, : SIDE // 2].all()
    assert not mask[:, SIDE // 2 :].any()


def test_mask_and_image_stay_aligned(tmp_path: Path) -> None:
    picture = Image.new("L", (130, 70), 0)
    picture.paste(255, (30, 20, 90, 60))
    picture.save(tmp_path / "a.png")
    bright = read_image(tmp_path / "a.png", size=32)[0] > 127
    assert (bright != read_mask(tmp_path / "a.png", size=32)).float().mean() < 0.02


def test_mask_takes_the_nearest_pixel_and_mixes_nothing(tmp_path: Path) -> None:
    stripes = np.zeros((SIDE * 3, SIDE * 3), dtype=np.uint8)
    stripes[:, 1::3] = 255  # the middle of every three columns
    Image.fromarray(stripes).save(tmp_path / "mask.png")
    assert read_mask(tmp_path / "mask.png", size=SIDE).all()


def test_unreadable_mask_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match=r"mask\.png"):
        read_mask(damaged(tmp_path / "mask.png", "truncated"), size=SIDE)
