"""Where on an image a region lies, and how much of the image around it is shown.

A prototype of points or patches is (image, place), and so is one of a part that is found in each image anew,
by where the part is most. Masks and occurrence maps cover the whole image: they have
no place, and are shown by their heatmaps alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from dprotonet.encoder.encoder import Encoder
from dprotonet.percent import percent

MARGIN = 1 / 14  # at most, on every side: one cell of the 14 × 14 map of a 224-pixel image at stride 16

PixelBox = tuple[int, int, int, int]  # left, top, right, bottom; the last two are the first ones outside


@dataclass(frozen=True)
class Place:
    """A box on an image, as shares of its height (top, height) and width (left, width)."""

    top: float
    left: float
    height: float
    width: float

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Place":
        """What `asdict` gave; ValueError or TypeError for anything else."""
        numbers = [content[item.name] for item in fields(cls)] if isinstance(content, dict) else []
        if len(content) != 4 or len(numbers) != 4 or any(type(one) not in (int, float) for one in numbers):
            raise ValueError("a place is top, left, height and width")
        place = cls(*map(float, numbers))
        down, across = place.top + place.height, place.left + place.width
        if not all(0 <= one <= 1 + 1e-6 for one in (*numbers, down, across)) or not min(numbers[2:]) > 0:
            raise ValueError("a place must lie within its image")
        return place

    @property
    def shown(self) -> "Place":
        """What pictures show of the image around it, since the network saw more than the box.

        The region and as much again on every side, at most a fourteenth of the image; at an edge it is moved
        inwards rather than cut. A point of a 14 × 14 map is shown as 3 × 3 places.
        """
        height = min(1.0, self.height + 2 * min(self.height, MARGIN))
        width = min(1.0, self.width + 2 * min(self.width, MARGIN))
        top = self.top + (self.height - height) / 2
        left = self.left + (self.width - width) / 2
        return Place(min(max(top, 0.0), 1 - height), min(max(left, 0.0), 1 - width), height, width)

    def box(self, height: int, width: int) -> PixelBox:
        """Its pixels on an image of that size, at least one."""
        left, right = _span(self.left, self.width, width)
        top, bottom = _span(self.top, self.height, height)
        return left, top, right, bottom

    @property
    def words(self) -> str:
        """Where its middle is, for tables: how far across and down the image."""
        across, down = self.left + self.width / 2, self.top + self.height / 2
        return f"{percent(across, 0)}, {percent(down, 0)}"


def region_places(encoder: Encoder) -> tuple[Place, ...] | None:
    """The place of every region; None where regions are no places."""
    boxes = encoder.boxes()
    return None if boxes is None else places_of(boxes)


def places_of(boxes: Tensor) -> tuple[Place, ...]:
    """Boxes (R, 4), each top, left, height and width."""
    return tuple(Place(*row) for row in boxes.double().tolist())


def place_of(region: int, places: Sequence[Place] | None) -> Place | None:
    """The place of a region, if it is known and has one."""
    return places[region] if places is not None and 0 <= region < len(places) else None


def _span(start: float, length: float, size: int) -> tuple[int, int]:
    first = min(math.floor(start * size + 0.5), size - 1)
    return first, min(size, max(first + 1, math.floor((start + length) * size + 0.5)))
