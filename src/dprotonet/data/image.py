"""Any image file as the square uint8 tensor that the network sees, and any mask as the matching truth.

Whatever the file holds (grey, 16 bit, float, palette, transparency, CMYK, EXIF rotation), the tensor shows
what a person sees in an image viewer; of several frames or pages, the first. Image and mask are fitted to the
square here, alike and once; augmentation and normalisation are left to `transforms`.

Unstated: the paper "cropped to 224x224". We squash the whole image to the square, antialiased, as ProtoPNet's
test pipeline does: no localisation truth is ever cropped away, and image and mask stay aligned.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from dprotonet.errors import UserError

_TO_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableImage(UserError):
    """A file that is no image, is cut short, is a decompression bomb or cannot be opened."""

    # One positional argument only: a DataLoader worker hands its exceptions over as type(message).
    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


def read_image(path: str | PathLike[str], *, size: int) -> Tensor:
    """The image in a file, upright and squashed to the square: (3, size, size) uint8."""
    return decode_image(_contents(path), name=str(path), size=size)


def decode_image(data: bytes, *, name: str, size: int) -> Tensor:
    """As `read_image`, of the bytes of a file; `name` is for the message of `UnreadableImage`."""
    with _opened(data, name) as image:
        # A JPEG at least twice too large is decoded at 1/2, 1/4 or 1/8 scale; others take no notice.
        image.draft(None, (size, size))
        return image_from_pil(image, size=size)


def image_from_pil(image: Image.Image, *, size: int) -> Tensor:
    """A PIL image of any mode, upright and squashed to the square: (3, size, size) uint8."""
    return _resized(_rgb(_upright(image)), (size, size))


def read_picture(path: str | PathLike[str], *, longest: int) -> Tensor:
    """The image in a file for people, upright and in proportion: (3, H, W) uint8, no edge above `longest`."""
    with _opened(_contents(path), str(path)) as image:
        image.draft(None, (longest, longest))
        return picture_from_pil(image, longest=longest)


def picture_from_pil(image: Image.Image, *, longest: int) -> Tensor:
    """A PIL image of any mode, upright and in proportion: (3, H, W) uint8, no edge above `longest`."""
    colours = _rgb(_upright(image))
    scale = min(1.0, longest / max(colours.size))
    return _resized(colours, (max(1, round(colours.width * scale)), max(1, round(colours.height * scale))))


def read_mask(path: str | PathLike[str], *, size: int) -> Tensor:
    """The truth in a file, (size, size) bool by nearest neighbour: all that is not black or transparent."""
    with _opened(_contents(path), str(path)) as image:
        truth = Image.fromarray(_nonzero(_upright(image)).astype(np.uint8))
        return torch.from_numpy(np.array(truth.resize((size, size), Image.Resampling.NEAREST)) > 0)


def _contents(path: str | PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(str(path), error.strerror or str(error)) from error


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[Image.Image]:
    if not data:
        raise _unreadable(name, "the file is empty")
    try:
        with Image.open(BytesIO(data)) as image:
            yield image
    except UnidentifiedImageError as error:
        raise _unreadable(name, "not an image, or of an unknown format") from error
    except Exception as error:  # a broken file makes PIL's decoders raise almost anything
        raise _unreadable(name, str(error) or type(error).__name__) from error


def _unreadable(name: str, reason: str) -> UnreadableImage:
    return UnreadableImage(f"cannot read {name}: {reason}; replace or remove the file", reason=reason)


def _resized(colours: Image.Image, size: tuple[int, int]) -> Tensor:
    resized = colours.resize(size, Image.Resampling.BILINEAR)  # antialiased by PIL
    # Turned by numpy: torch would wake a second thread for it, which costs more than the image.
    return torch.from_numpy(np.array(np.asarray(resized).transpose(2, 0, 1), order="C"))


def _upright(image: Image.Image) -> Image.Image:
    image.load()  # first: PIL turns TIFFs itself while loading, and PNGs may keep EXIF behind the pixels
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # damaged EXIF says nothing of the direction, and the pixels are fine
        return image
    return image.transpose(_TO_UPRIGHT[orientation]) if orientation in _TO_UPRIGHT else image


def _rgb(image: Image.Image) -> Image.Image:
    if _is_deep(image):
        return Image.fromarray(_eight_bits(np.asarray(image, dtype=np.float32), image.mode)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    cutout = image.convert("RGBA")  # transparency shows white, the paper such pictures are made for
    return Image.alpha_composite(Image.new("RGBA", cutout.size, "white"), cutout).convert("RGB")


def _is_deep(image: Image.Image) -> bool:
    return image.mode == "F" or image.mode.startswith("I")  # I, and I;16 of either byte order


def _eight_bits(values: np.ndarray, mode: str) -> np.ndarray:
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return np.zeros(values.shape, dtype=np.uint8)
    black, white = _range(float(finite.min()), float(finite.max()), mode)
    known = np.nan_to_num(values, nan=black, posinf=white, neginf=black)
    return ((known - black) / (white - black) * 255).round().clip(0, 255).astype(np.uint8)


def _range(low: float, high: float, mode: str) -> tuple[float, float]:
    """The values that stand for black and white in deep images.

    Non-negative numbers go by the bits in use, at least 8: a 12-bit radiograph in a 16-bit file is divided by
    4095, not by 65535, which would show black. Steps of whole bits are coarse: unlike with a stretch, most
    images of one detector keep their relative brightness. Floats up to 1 keep the range from 0 to 1. Numbers
    below zero (Hounsfield units) have no natural range and are stretched, smallest to largest.
    """
    if low < 0:
        return low, max(high, low + 1e-6)
    if mode == "F" and high <= 1:
        return 0.0, 1.0
    return 0.0, float(2 ** max(8, int(high).bit_length()) - 1)


def _nonzero(image: Image.Image) -> np.ndarray:
    if _is_deep(image):
        return np.asarray(image) != 0
    rgba = np.asarray(image.convert("RGBA"))  # colours, since number 0 of a palette need not be black
    return ((rgba[..., 0] | rgba[..., 1] | rgba[..., 2]) > 0) & (rgba[..., 3] > 0)
