"""The last line of a sheet with heatmaps: what their colours mean, and the lines that are drawn on them."""

from collections.abc import Iterable

import torch
from PIL import ImageColor
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.outline import Truth, boxed, outlined
from dprotonet.figures.overlay import draw_key
from dprotonet.figures.style import MARGIN, MUTED, SMALL, TRUE_BOX, font

KEY, FOOTER = 300, 50  # width of the colour key, and height of the line where it stands
_INSIDE = (8, 6, 52, 30)  # of a sample of 60 × 36 pixels


def draw_legend(canvas: Canvas, *, truths: Iterable[Truth | None], boxes: bool, note: str = "") -> None:
    """At the lower margin: the colour key, a sample of every kind of line there is, and a note.

    `truths` are those of the sheet; `boxes` says whether there are any that were found.
    """
    middle, left = canvas.image.height - MARGIN - 9, MARGIN + KEY + 34
    draw_key(canvas, (MARGIN, middle), KEY)
    known, ground = (
        [truth for truth in truths if truth is not None],
        plain(MUTED, 60, 36),
    )  # white shows on it
    if any(isinstance(truth, Tensor) for truth in known):
        inside = torch.zeros(36, 60, dtype=torch.bool)
        inside[6:30, 8:52] = True
        left = _draw_sample(canvas, (left, middle), outlined(ground, inside, width=2), "truth")
    if any(len(truth) for truth in known if not isinstance(truth, Tensor)):
        left = _draw_sample(canvas, (left, middle), boxed(ground, _INSIDE, colour=TRUE_BOX, width=2), "truth")
    if boxes:
        left = _draw_sample(canvas, (left, middle), boxed(ground, _INSIDE, width=2), "found")
    if note:
        room = canvas.image.width - MARGIN - left
        canvas.text((left, middle), note, size=SMALL, colour=MUTED, anchor="lm", width=room)


def plain(colour: str, width: int, height: int) -> Tensor:
    """A picture (3, H, W) uint8 of one colour."""
    paint = torch.tensor(ImageColor.getrgb(colour)[:3], dtype=torch.uint8)
    return paint.view(3, 1, 1).expand(3, height, width)


def _draw_sample(canvas: Canvas, at: tuple[int, int], sample: Tensor, word: str) -> int:
    """A small picture and what its line means; gives the place where the next may stand."""
    left, middle = at
    canvas.tile((left, middle - 9), sample, 30)
    canvas.text((left + 38, middle), word, size=SMALL, colour=MUTED, anchor="lm")
    return left + 38 + round(font(SMALL).getlength(word)) + 24
