"""A decoded image as a person sees it, upright and in colours, in bands: nothing of full size is made of it.

Converting 100 million pixels at once takes several times their memory; a band of rows takes little. Resizing
goes over the rows first and the columns then; where Pillow would begin with the columns, numbers differ by
the rounding between the two. Reading files is left to `image`.
"""

from collections.abc import Callable, Iterator

import numpy as np
from PIL import ExifTags, Image

from dprotonet.data.box import Box, Extent
from dprotonet.data.depth import eight_bits, grey_range

LYING = (5, 6, 7, 8)  # EXIF orientations with width and height exchanged
_PIXELS = 2_000_000  # of a band
_TO_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SMOOTH = Image.Resampling.BILINEAR  # antialiased by PIL
_FROM_BELOW, _FROM_RIGHT = (3, 4), (7, 8)  # the row at the top is the last one stored, or the last column


class Upright:
    """A PIL image of any mode, decoded now."""

    def __init__(self, image: Image.Image) -> None:
        image.load()  # first: PIL turns TIFFs itself while loading, and PNGs may keep EXIF behind the pixels
        self._image, self._turn = image, orientation(image)
        self.extent: Extent = image.size[::-1] if self._turn in LYING else image.size
        self._range = self._grey_range() if is_deep(image) else None

    def resized(self, size: Extent, box: Box | None = None) -> Image.Image:
        """`box` of it in RGB, antialiased, as of the whole at once."""
        width, height = self.extent
        left, top, right, bottom = box or (0, 0, width, height)
        if width * height <= _PIXELS:  # one band
            return self._rgb(self._band(0, height)).resize(size, _SMOOTH, box)
        narrow = Image.new("RGB", (size[0], height))
        reach = max(1.0, (bottom - top) / size[1]) + 1  # the filter looks beyond the box
        for first, last in self._bands():
            if last < top - reach or first > bottom + reach:
                continue
            band = self._rgb(self._band(first, last))
            inside = (left, 0, right, last - first)
            narrow.paste(band.resize((size[0], last - first), _SMOOTH, inside), (0, first))
        return narrow.resize(size, _SMOOTH, (0, top, size[0], bottom))

    def truth(self, rule: Callable[[Image.Image], np.ndarray]) -> np.ndarray:
        """What a rule for masks says of every pixel: uint8 (H, W), 0 or 1."""
        if is_deep(self._image):  # the rule may go by the range of all
            return rule(self._band(0, self.extent[1])).astype(np.uint8)
        found = np.empty(self.extent[::-1], dtype=np.uint8)
        for first, last in self._bands():
            found[first:last] = rule(self._band(first, last))
        return found

    def check(self) -> None:
        """Raises what converting to colours raises."""
        self._rgb(self._band(0, 1))

    def _bands(self) -> Iterator[tuple[int, int]]:
        width, height = self.extent
        rows = max(1, _PIXELS // width)
        return ((first, min(first + rows, height)) for first in range(0, height, rows))

    def _band(self, first: int, last: int) -> Image.Image:
        """Rows of the upright image, from wherever they are stored."""
        width, height = self._image.size
        if (first, last) == (0, self.extent[1]):
            part = self._image
        elif self._turn in LYING:
            left, right = (width - last, width - first) if self._turn in _FROM_RIGHT else (first, last)
            part = self._image.crop((left, 0, right, height))
        else:
            top, bottom = (height - last, height - first) if self._turn in _FROM_BELOW else (first, last)
            part = self._image.crop((0, top, width, bottom))
        return part.transpose(_TO_UPRIGHT[self._turn]) if self._turn in _TO_UPRIGHT else part

    def _rgb(self, band: Image.Image) -> Image.Image:
        if self._range is not None:
            return Image.fromarray(eight_bits(_numbers(band), self._range)).convert("RGB")
        return rgb(band)

    def _grey_range(self) -> tuple[float, float]:
        numbers = (_numbers(self._band(first, last)) for first, last in self._bands())
        return grey_range(numbers, fractions=self._image.mode == "F")


def orientation(image: Image.Image) -> int:
    """As EXIF says, from 1, which is upright, to 8."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF says nothing of the direction, and the pixels are fine
        return 1


def is_deep(image: Image.Image) -> bool:
    """Whether it has more than eight bits: I, F, and I;16 of either byte order."""
    return image.mode == "F" or image.mode.startswith("I")


def rgb(image: Image.Image) -> Image.Image:
    """In colours; transparency shows white, the paper such pictures are made for."""
    if is_deep(image):
        numbers = _numbers(image)
        return Image.fromarray(
            eight_bits(numbers, grey_range([numbers], fractions=image.mode == "F"))
        ).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    cutout = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", cutout.size, "white"), cutout).convert("RGB")


def _numbers(image: Image.Image) -> np.ndarray:
    return np.asarray(image, dtype=np.float32)
