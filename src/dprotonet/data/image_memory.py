"""How much memory one image may take: what decoding needs is reckoned from the header, before it begins.

A file of a few kilobytes can state any size, so the file's own size says nothing. What is reckoned is a
bound: the pixels as the decoder keeps them, its buffers beside them, the file, and the bands worked on.
"""

import os
from io import BytesIO
from typing import Any

from PIL import Image

from dprotonet.data.codestream import jpeg_frame, webp_extent
from dprotonet.errors import UserError

VARIABLE = "DPROTONET_IMAGE_MEMORY"
USUAL = 1000  # megabytes, where the variable says nothing
WORKING = 100_000_000  # bytes: the bands that are worked on, and what libraries keep for themselves

_ONE_BYTE, _TWO_BYTES = ("1", "L", "P"), ("I;16", "I;16L", "I;16B", "I;16N")
_MASK = 1  # byte a pixel: a mask's truth is kept beside it
_BESIDE = {"WEBP": 12, "GIF": 3, "BMP": 4, "PPM": 8}
"""Bytes a pixel that a decoder keeps beside the image: canvases, or what is unpacked in Python."""
_YCBCR = 6  # how a TIFF says so
_COEFFICIENT = 2  # bytes: a JPEG of several scans is kept as coefficients until the last scan
_FILE_COPIES = {"TIFF": 2}


class TooMuchMemory(ValueError):
    """An image that would take more memory than one image may."""


def allowed_bytes() -> int:
    """How much memory one image may take."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return USUAL * 10**6
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UserError(f"{VARIABLE} is '{text}'; it must be a number of megabytes, such as {2 * USUAL}")
    return int(text) * 10**6


def open_image(data: bytes, formats: tuple[str, ...]) -> Image.Image:
    """The image in the bytes of a file, not yet decoded.

    Where more memory is allowed than usual, Pillow's own limit of pixels must not be in the way.
    """
    allowed = allowed_bytes()
    if allowed > USUAL * 10**6 and Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, allowed // 2)
    width, height = webp_extent(data)
    check_bytes(width * height * (4 + _BESIDE["WEBP"]), f"decoding {width} × {height} pixels")
    return Image.open(BytesIO(data), formats=formats)


def check_bytes(needed: int, what: str) -> None:
    """Raise `TooMuchMemory` if that many bytes are more than one image may take."""
    allowed = allowed_bytes()
    if needed > allowed:
        raise TooMuchMemory(
            f"{what} would take {_megabytes(needed)} MB of memory, more than the {_megabytes(allowed)} MB "
            f"that one image may take; set {VARIABLE}={_megabytes(needed)} to allow it"
        )


def check_image(image: Image.Image, data: bytes) -> None:
    """The same for an image file that is open and not decoded, at the scale that it will be decoded at."""
    check_bytes(needed_bytes(image, data), f"decoding {image.width} × {image.height} pixels")


def needed_bytes(image: Image.Image, data: bytes) -> int:
    """A bound of what decoding takes above what the process takes already."""
    kind = image.format or ""
    beside = _BESIDE.get(kind, 0) + _MASK
    pixels = image.width * image.height * (_stored(image.mode) + beside)
    return pixels + _buffers(image, kind, data) + len(data) * _FILE_COPIES.get(kind, 1) + WORKING


def _stored(mode: str) -> int:
    """Bytes that Pillow keeps for a pixel."""
    return 1 if mode in _ONE_BYTE else 2 if mode in _TWO_BYTES else 4


def _buffers(image: Any, kind: str, data: bytes) -> int:
    if kind in ("JPEG", "MPO"):
        frame = jpeg_frame(data)
        return frame.samples * _COEFFICIENT if frame is not None and frame.several_scans else 0
    return _piece(image.tag_v2) if kind == "TIFF" else 0


def _piece(tags: Any) -> int:
    """The largest strip or tile of a TIFF, which is unpacked as a whole, whatever the size of the image."""
    width, height = int(tags.get(256, 0)), int(tags.get(257, 0))
    bits = tags.get(258, (8,))
    pixel = max(1, sum(bits) * int(tags.get(277, 1)) // max(1, len(bits)) // 8)
    if tags.get(262) == _YCBCR:
        pixel = 4  # unpacked as colours with transparency
    if 322 in tags:
        return int(tags[322]) * int(tags.get(323, 0)) * pixel
    return width * min(height, int(tags.get(278, height))) * pixel


def _megabytes(count: int) -> int:
    return -(-count // 10**6)
