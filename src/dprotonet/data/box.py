"""Boxes and points on an image, and the masks they become.

A box is kept in pixels of the original image, right and bottom being the first ones outside. Truth is a mask
everywhere in the program, so a box becomes a filled one and a part's point a small disc, on the square that
the network sees. Which file says where a box lies is left to the readers.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Extent = tuple[int, int]  # width, height


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    @property
    def empty(self) -> bool:
        return not (self.right > self.left and self.bottom > self.top)  # also of NaN

    def clipped(self, extent: Extent) -> "Box":
        """What of it lies within an image of this extent; it may be empty."""
        right, bottom = min(self.right, float(extent[0])), min(self.bottom, float(extent[1]))
        return Box(max(self.left, 0.0), max(self.top, 0.0), right, bottom)

    def overhang(self, extent: Extent) -> float:
        """By how many pixels it reaches outside the image."""
        return max(-self.left, -self.top, self.right - extent[0], self.bottom - extent[1], 0.0)

    def scaled(self, across: float, down: float) -> "Box":
        return Box(self.left * across, self.top * down, self.right * across, self.bottom * down)

    def inside(self, frame: "Box") -> "Box":
        """A box in shares of a frame, in the frame's own measure."""
        across, down = frame.right - frame.left, frame.bottom - frame.top
        left, top, right, bottom = self.scaled(across, down)
        return Box(frame.left + left, frame.top + top, frame.left + right, frame.top + bottom)

    def within(self, frame: "Box", size: int) -> "Box":
        """The same place on a square of `size` pixels to which the frame was squashed, cut at its edges."""
        across, down = size / (frame.right - frame.left), size / (frame.bottom - frame.top)
        moved = Box(
            self.left - frame.left, self.top - frame.top, self.right - frame.left, self.bottom - frame.top
        )
        return moved.scaled(across, down).clipped((size, size))


class Point(NamedTuple):
    """Where a part of the thing is; None where it cannot be seen."""

    part: str
    place: tuple[float, float] | None  # x, y


def filled(boxes: Sequence[Box], size: int) -> Tensor:
    """The pixels (size, size) whose centres lie in any of the boxes; a box of any area fills at least one."""
    mask = torch.zeros(size, size, dtype=torch.bool)
    for box in boxes:
        if not box.empty:
            mask[_span(box.top, box.bottom, size), _span(box.left, box.right, size)] = True
    return mask


def pixel_box(box: Box, size: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the pixels that `filled` fills of a box that is not empty."""
    across, down = _span(box.left, box.right, size), _span(box.top, box.bottom, size)
    return across.start, down.start, min(across.stop, size), min(down.stop, size)


def disc(x: float, y: float, *, radius: float, size: int) -> Tensor:
    """The pixels (size, size) whose centres lie within `radius` of a point, and the one the point is in."""
    centres = torch.arange(size) + 0.5
    mask: Tensor = (centres - x) ** 2 + (centres[:, None] - y) ** 2 <= radius**2
    mask[min(max(int(y), 0), size - 1), min(max(int(x), 0), size - 1)] = True
    return mask


def whole(extent: Extent) -> Box:
    """The box that is the image itself."""
    return Box(0.0, 0.0, float(extent[0]), float(extent[1]))


def _span(low: float, high: float, size: int) -> slice:
    first = min(math.ceil(low - 0.5), size - 1)
    return slice(first, max(math.ceil(high - 0.5), first + 1))
