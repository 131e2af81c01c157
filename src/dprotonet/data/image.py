"""Any image file as the square uint8 tensor that the network sees, and any mask as the matching truth.

Whatever the file holds (grey, 16 bit, float, palette, transparency, CMYK, EXIF rotation), the tensor shows
what a person sees in an image viewer; of several frames or pages, the first. Image and mask are fitted to the
square here, alike and once; augmentation and normalisation are left to `transforms`.

Unstated: the paper "cropped to 224x224". We resize the whole image to the square, antialiased, as ProtoPNet's
test pipeline does: no localisation truth is cropped away, and image and mask stay aligned.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from math import ceil
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from dprotonet.data.box import Box, Extent, whole
from dprotonet.data.depth import eight_bits
from dprotonet.data.dicom import SUFFIX, dicom_image
from dprotonet.errors import UserError

MaskRule = Callable[[Image.Image], np.ndarray]
"""Which pixels of a mask file are truth, bool (H, W)."""

_PROBE = 8  # pixels: enough to decode everything, and the fastest road through the JPEG decoder
_WHOLE = Box(0.0, 0.0, 1.0, 1.0)
_LYING = (5, 6, 7, 8)  # EXIF orientations with width and height exchanged
_RIGHT_TO_LEFT = (2, 3, 6, 7)  # what is stored last is shown at the left
_UPSIDE_DOWN = (3, 4, 7, 8)  # what is stored last is shown at the top
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


def read_image(path: str | PathLike[str], *, size: int, crop: Box | None = None) -> Tensor:
    """The image in a file, upright and squashed to the square: (3, size, size) uint8.

    `crop` is the part to take, in shares of width and height.
    """
    return decode_image(contents(path), name=str(path), size=size, crop=crop)


def decode_image(data: bytes, *, name: str, size: int, crop: Box | None = None) -> Tensor:
    """As `read_image`, of the bytes of a file; `name` is for the message of `UnreadableImage`."""
    with _opened(data, name) as image:
        part = crop or _WHOLE
        shrunk = _drafted(image, size, part)
        colours = _rgb(_upright(image))
        frame = whole(colours.size) if shrunk is None else _frame(image, shrunk, colours.size)
        return _resized(colours, (size, size), part.inside(frame))


def probed_extent(data: bytes, *, name: str) -> Extent:
    """Width and height of the upright image in the bytes of a file, all of which was decoded to be sure."""
    with _opened(data, name) as image:
        stored = image.size
        image.draft(None, (_PROBE, _PROBE))
        drafted = image.size != stored
        upright = _rgb(_upright(image)).size
        if not drafted:
            return upright
        return stored[::-1] if _orientation(image) in _LYING else stored


def upright_extent(image: Image.Image) -> Extent:
    """Width and height of a PIL image, turned as EXIF says."""
    return _upright(image).size


def image_from_pil(image: Image.Image, *, size: int) -> Tensor:
    """A PIL image of any mode, upright and squashed to the square: (3, size, size) uint8."""
    return _resized(_rgb(_upright(image)), (size, size))


def read_picture(path: str | PathLike[str], *, longest: int) -> Tensor:
    """The image in a file for people, upright and in proportion: (3, H, W) uint8, no edge above `longest`."""
    with _opened(contents(path), str(path)) as image:
        image.draft(None, (longest, longest))
        return picture_from_pil(image, longest=longest)


def picture_from_pil(image: Image.Image, *, longest: int) -> Tensor:
    """A PIL image of any mode, upright and in proportion: (3, H, W) uint8, no edge above `longest`."""
    colours = _rgb(_upright(image))
    scale = min(1.0, longest / max(colours.size))
    return _resized(colours, (max(1, round(colours.width * scale)), max(1, round(colours.height * scale))))


def shown(image: Image.Image) -> np.ndarray:
    """Truth is all that is not black or transparent."""
    if _is_deep(image):
        return np.asarray(image) != 0
    rgba = np.asarray(image.convert("RGBA"))  # colours, since number 0 of a palette need not be black
    return ((rgba[..., 0] | rgba[..., 1] | rgba[..., 2]) > 0) & (rgba[..., 3] > 0)


def bright(image: Image.Image) -> np.ndarray:
    """Truth is the brighter half of the grey levels."""
    return np.asarray(_rgb(image).convert("L")) > 127


def dark(image: Image.Image) -> np.ndarray:
    """Truth is the darker half of the grey levels."""
    return ~bright(image)


def read_mask(
    path: str | PathLike[str], *, size: int, rule: MaskRule = shown, crop: Box | None = None
) -> Tensor:
    """The truth in a file, (size, size) bool by nearest neighbour; `crop` in shares of width and height."""
    with _opened(contents(path), str(path)) as image:
        truth = Image.fromarray(rule(_upright(image)).astype(np.uint8))
        part = None if crop is None else crop.scaled(*truth.size)
        return torch.from_numpy(np.array(truth.resize((size, size), Image.Resampling.NEAREST, box=part)) > 0)


def contents(path: str | PathLike[str]) -> bytes:
    """The bytes of a file; `UnreadableImage` says why there are none. A pipe would be waited for for ever."""
    try:
        kind = os.stat(path).st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise _unreadable(str(path), "a pipe or a device, not a file")
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(str(path), error.strerror or str(error)) from error


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[Image.Image]:
    if not data:
        raise _unreadable(name, "the file is empty")
    try:
        with dicom_image(data) if name.lower().endswith(SUFFIX) else Image.open(BytesIO(data)) as image:
            yield image
    except UserError:  # a package is missing
        raise
    except UnidentifiedImageError as error:
        raise _unreadable(name, "not an image, or of an unknown format") from error
    except Exception as error:  # a broken file makes PIL's decoders raise almost anything
        raise _unreadable(name, str(error) or type(error).__name__) from error


def _unreadable(name: str, reason: str) -> UnreadableImage:
    return UnreadableImage(f"cannot read {name}: {reason}; replace or remove the file", reason=reason)


def _drafted(image: Image.Image, size: int, part: Box) -> tuple[float, float] | None:
    """Have a JPEG at least twice too large decoded at 1/2, 1/4 or 1/8 scale; other formats take no notice.

    Gives the true width and height as stored at that scale: the pixels are whole and may reach a little
    further. What is decoded of `part`, which is in shares of the upright image, is at least `size` wide and
    high.
    """
    wanted = ceil(size / (part.right - part.left)), ceil(size / (part.bottom - part.top))
    drafted = image.draft(None, wanted[::-1] if _orientation(image) in _LYING else wanted)
    return None if drafted is None else (drafted[1][2], drafted[1][3])


def _frame(image: Image.Image, shrunk: tuple[float, float], extent: Extent) -> Box:
    """Where in the upright pixels the image lies, to the fraction: on shrinking, the last row and column
    may be more than it has, and turned upright they may be the first. Without this, image and truth would be
    apart by up to a pixel."""
    orientation = _orientation(image)
    width, height = shrunk[::-1] if orientation in _LYING else shrunk
    left = extent[0] - width if orientation in _RIGHT_TO_LEFT else 0.0
    top = extent[1] - height if orientation in _UPSIDE_DOWN else 0.0
    return Box(left, top, left + width, top + height)


def _resized(colours: Image.Image, size: tuple[int, int], box: Box | None = None) -> Tensor:
    resized = colours.resize(size, Image.Resampling.BILINEAR, box)  # antialiased by PIL
    # Turned by numpy: torch would wake a second thread for it, which costs more than the image.
    return torch.from_numpy(np.array(np.asarray(resized).transpose(2, 0, 1), order="C"))


def _upright(image: Image.Image) -> Image.Image:
    image.load()  # first: PIL turns TIFFs itself while loading, and PNGs may keep EXIF behind the pixels
    orientation = _orientation(image)
    return image.transpose(_TO_UPRIGHT[orientation]) if orientation in _TO_UPRIGHT else image


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF says nothing of the direction, and the pixels are fine
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    if _is_deep(image):
        return Image.fromarray(_seen(image)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    cutout = image.convert("RGBA")  # transparency shows white, the paper such pictures are made for
    return Image.alpha_composite(Image.new("RGBA", cutout.size, "white"), cutout).convert("RGB")


def _seen(image: Image.Image) -> np.ndarray:
    return eight_bits(np.asarray(image, dtype=np.float32), fractions=image.mode == "F")


def _is_deep(image: Image.Image) -> bool:
    return image.mode == "F" or image.mode.startswith("I")  # I, and I;16 of either byte order
