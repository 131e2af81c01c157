"""What each prototype of a class stands for: its place in many images, side by side, so that it can be named.

One row a prototype. Each image is shown twice, its place large and beneath it the whole with the place boxed;
whether these are always the same part is for the reader to see.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.outline import Box, marked
from dprotonet.figures.placed import cropped
from dprotonet.figures.style import BODY, MARGIN, MUTED, SMALL, TITLE, font, wrapped

TILE, GAP = 92, 8  # edge of a picture, and between two
NAME = 190  # width of the column of names
HEADER = 82  # with a note of one line
LINE = 21
SPACE = 30  # between two rows, with a hairline in the middle


@dataclass(frozen=True)
class PartRow:
    """One prototype: what it is called, what is known of that, and its places, the best first."""

    label: str
    name: str
    note: str
    images: Sequence[Tensor]  # (3, H, W) uint8 each
    boxes: Sequence[Box]  # in each image


def part_sheet(rows: Sequence[PartRow], *, title: str, note: str = "") -> Image.Image:
    """A sheet with one row a prototype; `note` says what the pictures show."""
    for row in rows:
        if len(row.images) != len(row.boxes):
            raise ValueError(f"{row.label}: {len(row.images)} images, but {len(row.boxes)} boxes")
    columns = max((len(row.images) for row in rows), default=0)
    width = NAME + max(columns, 8) * (TILE + GAP) - GAP
    height = 2 * TILE + GAP + SPACE
    told = wrapped(note, width, font(SMALL), lines=3)
    header = HEADER + LINE * max(len(told) - 1, 0)
    canvas = Canvas(2 * MARGIN + width, 2 * MARGIN + header + max(len(rows) * height - SPACE, 0))
    canvas.text((MARGIN, MARGIN + 24), title, size=TITLE, bold=True, width=width)
    for number, line in enumerate(told):
        canvas.text((MARGIN, MARGIN + 52 + number * LINE), line, size=SMALL, colour=MUTED)
    for place, row in enumerate(rows):
        top = MARGIN + header + place * height
        canvas.rule((MARGIN, top - SPACE // 2), (MARGIN + width, top - SPACE // 2))
        _draw_row(canvas, row, top)
    return canvas.image


def _draw_row(canvas: Canvas, row: PartRow, top: int) -> None:
    baseline = top + 20
    for line in wrapped(row.name, NAME - GAP, font(BODY, bold=True), lines=3):
        canvas.text((MARGIN, baseline), line, bold=True)
        baseline += 24
    for words in (row.label, row.note):
        canvas.text((MARGIN, baseline), words, size=SMALL, colour=MUTED, width=NAME - GAP)
        baseline += LINE
    for column, (image, box) in enumerate(zip(row.images, row.boxes, strict=True)):
        left = MARGIN + NAME + column * (TILE + GAP)
        canvas.picture((left, top), cropped(image, box, side=2 * TILE), TILE)
        canvas.picture((left, top + TILE + GAP), marked(image, side=TILE, box=box), TILE)
