"""A sheet of paper to draw on: text, rules, bars and pictures at pixel positions.

A thin layer over PIL that keeps every sheet to one typography and one palette, so that the sheets themselves
only say what goes where.
"""

import math
from functools import lru_cache

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from dprotonet.figures.style import BODY, HAIRLINE, INK, PAPER, fitted, font

Point = tuple[float, float]
RADIUS = 5  # of the corners of pictures


class Canvas:
    """A light sheet of the given size; `image` is the finished picture."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height), PAPER)
        self._draw = ImageDraw.Draw(self.image)

    def text(
        self,
        at: Point,
        text: str,
        *,
        size: int = BODY,
        colour: str = INK,
        bold: bool = False,
        width: float = math.inf,
        anchor: str = "ls",
        tail: int = 0,
    ) -> None:
        """One line of text, cut to `width` but for its last `tail` characters; `anchor` is PIL's, by default
        left on the baseline."""
        typeface = font(size, bold)
        shown = fitted(text, width, typeface, tail=tail)
        self._draw.text(at, shown, fill=colour, font=typeface, anchor=anchor)

    def bar(self, start: Point, end: Point, colour: str) -> None:
        """A filled rectangle between two corners in any order; never so narrow that it cannot be seen."""
        left, right = sorted((round(start[0]), round(end[0])))
        top, bottom = sorted((round(start[1]), round(end[1])))
        self._draw.rectangle((left, top, max(right, left + 2) - 1, max(bottom, top + 1) - 1), fill=colour)

    def rule(self, start: Point, end: Point, *, colour: str = HAIRLINE, width: int = 1) -> None:
        """A straight line."""
        self._draw.line((*map(round, start), *map(round, end)), fill=colour, width=width)

    def picture(self, at: Point, image: Tensor, side: int) -> None:
        """An image (3 or 1, H, W) uint8, centred in a square that begins at `at`, its corners rounded."""
        shown = resized(picture(image), side)
        left = round(at[0]) + (side - shown.width) // 2
        top = round(at[1]) + (side - shown.height) // 2
        self.image.paste(shown, (left, top), rounding(*shown.size))

    def tile(self, at: tuple[int, int], image: Tensor, side: int) -> None:
        """The image flush with `at`, whatever its proportions; its longer edge is `side`."""
        width, height = extent(image, side)
        self.picture((at[0] - (side - width) // 2, at[1] - (side - height) // 2), image, side)


def picture(image: Tensor) -> Image.Image:
    """A PIL image of an image tensor (3, H, W) or (1, H, W) uint8."""
    if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3):
        raise ValueError(
            f"an image must be uint8 of shape (3, H, W) or (1, H, W), not {image.dtype} {tuple(image.shape)}"
        )
    pixels = image.detach().cpu().expand(3, -1, -1).permute(1, 2, 0).contiguous()
    return Image.fromarray(pixels.numpy())


def extent(image: Tensor, side: int) -> tuple[int, int]:
    """Width and height of an image whose longer edge is drawn `side` pixels long."""
    height, width = image.shape[-2:]
    scale = side / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def resized(image: Image.Image, side: int) -> Image.Image:
    """The image scaled so that its longer edge is `side`, its proportions kept."""
    scale = side / max(image.size)
    width, height = (max(1, round(edge * scale)) for edge in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


@lru_cache(maxsize=32)
def rounding(width: int, height: int) -> Image.Image:
    """An opacity mask with rounded corners, drawn large and shrunk because PIL does not antialias."""
    fine = 4
    mask = Image.new("L", (width * fine, height * fine), 0)
    edge = (0, 0, width * fine - 1, height * fine - 1)
    ImageDraw.Draw(mask).rounded_rectangle(edge, radius=RADIUS * fine, fill=255)
    return mask.resize((width, height), Image.Resampling.BOX)
