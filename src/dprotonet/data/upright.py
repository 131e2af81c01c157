"""A decoded image as a person sees it, upright and in colours, in bands: nothing of full size is made of it.

Converting 100 million pixels at once takes several times their memory; a band of rows takes little. Resizing
goes over the rows first and the columns then, except where the image is so narrow that its rows would become
much wider. Where Pillow goes the other way, numbers differ by the rounding between the two. Reading files is
left to `image`.
"""

from collections.abc import Callable, Iterator
from math import ceil, floor

import numpy as np
from PIL import ExifTags, Image

from dprotonet.data.box import Box, Extent
from dprotonet.data.depth import eight_bits, grey_range

LYING = (5, 6, 7, 8)  # EXIF orientations with width and height exchanged
_PIXELS = 2_000_000  # of a band
_BETWEEN = 25_000_000  # pixels of an image that is resized in one direction and not yet in the other
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
_FROM_RIGHT, _FROM_BELOW = (2, 3, 6, 7), (3, 4, 7, 8)  # the side of the upright image that is stored first
_RANGE = "range of all"  # of a deep image, kept with a band of it


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
        if width > _PIXELS:  # a row is more than a band
            return self._across(size[0], left, right).resize(size, _SMOOTH, (0, top, size[0], bottom))
        if size[0] * height > max(_BETWEEN, width * size[1]):  # so narrow that rows become much wider
            return self._down(size[1], top, bottom).resize(size, _SMOOTH, (left, 0, right, size[1]))
        if width * height <= _PIXELS:  # one band
            return self._rgb(self._part(0, 0, width, height)).resize(size, _SMOOTH, box)
        narrow = Image.new("RGB", (size[0], height))
        reach = max(1.0, (bottom - top) / size[1]) + 1  # the filter looks beyond the box
        for across, first, beyond, last in self._parts():
            if last < top - reach or first > bottom + reach:
                continue
            band = self._rgb(self._part(across, first, beyond, last))
            inside = (left, 0, right, last - first)
            narrow.paste(band.resize((size[0], last - first), _SMOOTH, inside), (0, first))
        return narrow.resize(size, _SMOOTH, (0, top, size[0], bottom))

    def _across(self, count: int, left: float, right: float) -> Image.Image:
        """From `left` to `right` in so many columns, all rows as they are."""
        width, height = self.extent
        narrow = Image.new("RGB", (count, height))
        for column, (first, last) in enumerate(_reaches(count, left, right, width)):
            begin = left + column * (right - left) / count - first
            inside = (begin, 0, begin + (right - left) / count, height)
            part = self._rgb(self._part(first, 0, last, height))
            narrow.paste(part.resize((1, height), _SMOOTH, inside), (column, 0))
        return narrow

    def _down(self, count: int, top: float, bottom: float) -> Image.Image:
        """From `top` to `bottom` in so many rows, all columns as they are."""
        width, height = self.extent
        low = Image.new("RGB", (width, count))
        for row, (first, last) in enumerate(_reaches(count, top, bottom, height)):
            begin = top + row * (bottom - top) / count - first
            inside = (0, begin, width, begin + (bottom - top) / count)
            part = self._rgb(self._part(0, first, width, last))
            low.paste(part.resize((width, 1), _SMOOTH, inside), (0, row))
        return low

    def truth(self, rule: Callable[[Image.Image], np.ndarray]) -> np.ndarray:
        """What a rule for masks says of every pixel: uint8 (H, W), 0 or 1."""
        found = np.empty(self.extent[::-1], dtype=np.uint8)
        for left, top, right, bottom in self._parts():
            part = self._part(left, top, right, bottom)
            part.info[_RANGE] = self._range  # the rule may go by it
            found[top:bottom, left:right] = rule(part)
        return found

    def check(self) -> None:
        """Raises what converting to colours raises."""
        self._rgb(self._part(0, 0, 1, 1))

    def _parts(self) -> Iterator[tuple[int, int, int, int]]:
        """Boxes that cover it, none of more pixels than a band: rows, or pieces of rows."""
        width, height = self.extent
        rows, columns = max(1, _PIXELS // width), min(width, _PIXELS)
        for top in range(0, height, rows):
            for left in range(0, width, columns):
                yield left, top, min(left + columns, width), min(top + rows, height)

    def _part(self, left: int, top: int, right: int, bottom: int) -> Image.Image:
        """A box of the upright image, from wherever it is stored."""
        width, height = self.extent
        if (left, top, right, bottom) == (0, 0, width, height):
            part = self._image
        else:
            if self._turn in _FROM_RIGHT:
                left, right = width - right, width - left
            if self._turn in _FROM_BELOW:
                top, bottom = height - bottom, height - top
            stored = (left, top, right, bottom)
            part = self._image.crop((top, left, bottom, right) if self._turn in LYING else stored)
        return part.transpose(_TO_UPRIGHT[self._turn]) if self._turn in _TO_UPRIGHT else part

    def _rgb(self, band: Image.Image) -> Image.Image:
        band.info[_RANGE] = self._range
        return rgb(band)

    def _grey_range(self) -> tuple[float, float]:
        numbers = (_numbers(self._part(*part)) for part in self._parts())
        return grey_range(numbers, fractions=self._image.mode == "F")


def _reaches(count: int, first: float, last: float, extent: int) -> Iterator[tuple[int, int]]:
    """For each of `count` steps from `first` to `last` all that its filter sees of 0 to `extent`."""
    step = (last - first) / count
    reach = max(1.0, step) + 1
    for number in range(count):
        middle = first + (number + 0.5) * step
        yield max(0, floor(middle - reach)), min(extent, ceil(middle + reach))


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
        known = image.info.get(_RANGE) or grey_range([numbers], fractions=image.mode == "F")
        return Image.fromarray(eight_bits(numbers, known)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    cutout = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", cutout.size, "white"), cutout).convert("RGB")


def _numbers(image: Image.Image) -> np.ndarray:
    return np.asarray(image, dtype=np.float32)
