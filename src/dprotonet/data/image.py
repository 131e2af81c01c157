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
from math import ceil
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from dprotonet.data.box import Box, Extent, whole
from dprotonet.data.dicom import SUFFIX, dicom_image
from dprotonet.data.image_memory import VARIABLE, TooMuchMemory, check_bytes, check_image, open_image
from dprotonet.data.upright import LYING, Upright, is_deep, orientation, rgb
from dprotonet.errors import UserError

MaskRule = Callable[[Image.Image], np.ndarray]
"""Which pixels of a mask file are truth, bool (H, W)."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is read. Pillow knows more; for some it starts programs, or learns the size while decoding."""

_PROBE = 8  # pixels: enough to decode everything, and the fastest road through the JPEG decoder
_WHOLE = Box(0.0, 0.0, 1.0, 1.0)
_RIGHT_TO_LEFT = (2, 3, 6, 7)  # what is stored last is shown at the left
_UPSIDE_DOWN = (3, 4, 7, 8)  # what is stored last is shown at the top


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
        upright = _decoded(image, data)
        frame = whole(upright.extent) if shrunk is None else _frame(image, shrunk, upright.extent)
        return _tensor(upright.resized((size, size), part.inside(frame)))


def probed_extent(data: bytes, *, name: str) -> Extent:
    """Width and height of the upright image in the bytes of a file, all of which was decoded to be sure."""
    with _opened(data, name) as image:
        stored = image.size
        image.draft(None, (_PROBE, _PROBE))
        drafted = image.size != stored
        upright = _decoded(image, data)
        upright.check()
        if not drafted:
            return upright.extent
        return stored[::-1] if orientation(image) in LYING else stored


def upright_extent(image: Image.Image) -> Extent:
    """Width and height of a PIL image, turned as EXIF says."""
    return Upright(image).extent


def image_from_pil(image: Image.Image, *, size: int) -> Tensor:
    """A PIL image of any mode, upright and squashed to the square: (3, size, size) uint8."""
    return _tensor(Upright(image).resized((size, size)))


def read_picture(path: str | PathLike[str], *, longest: int) -> Tensor:
    """The image in a file for people, upright and in proportion: (3, H, W) uint8, no edge above `longest`."""
    data = contents(path)
    with _opened(data, str(path)) as image:
        image.draft(None, (longest, longest))
        return _picture(_decoded(image, data), longest)


def picture_from_pil(image: Image.Image, *, longest: int) -> Tensor:
    """A PIL image of any mode, upright and in proportion: (3, H, W) uint8, no edge above `longest`."""
    return _picture(Upright(image), longest)


def _picture(upright: Upright, longest: int) -> Tensor:
    width, height = upright.extent
    scale = min(1.0, longest / max(width, height))
    return _tensor(upright.resized((max(1, round(width * scale)), max(1, round(height * scale)))))


def shown(image: Image.Image) -> np.ndarray:
    """Truth is all that is not black or transparent."""
    if is_deep(image):
        return np.asarray(image) != 0
    rgba = np.asarray(image.convert("RGBA"))  # colours, since number 0 of a palette need not be black
    return ((rgba[..., 0] | rgba[..., 1] | rgba[..., 2]) > 0) & (rgba[..., 3] > 0)


def bright(image: Image.Image) -> np.ndarray:
    """Truth is the brighter half of the grey levels."""
    return np.asarray(rgb(image).convert("L")) > 127


def dark(image: Image.Image) -> np.ndarray:
    """Truth is the darker half of the grey levels."""
    return ~bright(image)


def read_mask(
    path: str | PathLike[str], *, size: int, rule: MaskRule = shown, crop: Box | None = None
) -> Tensor:
    """The truth in a file, (size, size) bool by nearest neighbour; `crop` in shares of width and height."""
    data = contents(path)
    with _opened(data, str(path)) as image:
        truth = Image.fromarray(_decoded(image, data).truth(rule))
        part = None if crop is None else crop.scaled(*truth.size)
        return torch.from_numpy(np.array(truth.resize((size, size), Image.Resampling.NEAREST, box=part)) > 0)


def contents(path: str | PathLike[str]) -> bytes:
    """The bytes of a file; `UnreadableImage` says why there are none. A pipe would be waited for for ever."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise _unreadable(str(path), "a pipe or a device, not a file")
        check_bytes(found.st_size, f"its {found.st_size / 1e6:.0f} MB")
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(str(path), error.strerror or str(error)) from error
    except TooMuchMemory as error:
        raise _unreadable(str(path), str(error)) from error


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[Image.Image]:
    if not data:
        raise _unreadable(name, "the file is empty")
    try:
        with dicom_image(data) if name.lower().endswith(SUFFIX) else open_image(data, FORMATS) as image:
            yield image
    except UserError:  # a package is missing
        raise
    except Image.DecompressionBombError as error:
        raise _unreadable(name, f"{error}; {VARIABLE} in megabytes raises the limit") from error
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
    drafted = image.draft(None, wanted[::-1] if orientation(image) in LYING else wanted)
    return None if drafted is None else (drafted[1][2], drafted[1][3])


def _frame(image: Image.Image, shrunk: tuple[float, float], extent: Extent) -> Box:
    """Where in the upright pixels the image lies, to the fraction: on shrinking, the last row and column
    may be more than it has, and turned upright they may be the first. Without this, image and truth would be
    apart by up to a pixel."""
    turn = orientation(image)
    width, height = shrunk[::-1] if turn in LYING else shrunk
    left = extent[0] - width if turn in _RIGHT_TO_LEFT else 0.0
    top = extent[1] - height if turn in _UPSIDE_DOWN else 0.0
    return Box(left, top, left + width, top + height)


def _decoded(image: Image.Image, data: bytes) -> Upright:
    check_image(image, data)
    return Upright(image)


def _tensor(resized: Image.Image) -> Tensor:
    # Turned by numpy: torch would wake a second thread for it, which costs more than the image.
    return torch.from_numpy(np.array(np.asarray(resized).transpose(2, 0, 1), order="C"))
