"""The same images as several methods explain them: one row an image, one column a method.

At the left the image itself; the truth, where there is one, is outlined in every picture of its row, so that
it can be seen who found the object. Making the heatmaps is left to interpretation, colouring them to
`overlay`, the lines to `outline`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from PIL import Image, ImageColor
from torch import Tensor

from dprotonet.figures.canvas import Canvas, extent
from dprotonet.figures.outline import Box, boxed, marked, outlined
from dprotonet.figures.overlay import draw_key, overlay
from dprotonet.figures.style import GAP, HAIRLINE, MARGIN, MUTED, QUIET, SMALL, fitted, font, wrapped
from dprotonet.figures.words import Words

NAME = 216  # width of the column of titles and captions
WIDEST, LARGEST = 2000, 248  # of all pictures of a row together, and of one
SPACE = 22  # between two rows
LINE = 21  # height of a line of a column's head
KEY, FOOTER = 300, 50  # width of the colour key, and height of the line where it stands
FAILED, NARROWEST = "no heatmap", 112  # what an empty tile says, and the room that takes


@dataclass(frozen=True)
class Row:
    """One image and what stands beside it; heatmaps and boxes by the name of their method."""

    image: Tensor
    heatmaps: Mapping[str, Tensor | None]
    boxes: Mapping[str, Box | None]
    truth: Tensor | None
    words: Words

    def height(self, side: int) -> int:
        return max(extent(self.image, side)[1], self.words.height)

    def pictures(self, side: int) -> list[Tensor | None]:
        """The image, then the overlay of every method, None where it has no heatmap."""
        first = marked(self.image, side=side, truth=self.truth)
        return [first, *(self._overlay(method, side) for method in self.heatmaps)]

    def _overlay(self, method: str, side: int) -> Tensor | None:
        heatmap = self.heatmaps[method]
        if heatmap is None:
            return None
        try:
            shown = overlay(self.image, heatmap)
            return marked(shown, side=side, truth=self.truth, box=self.boxes.get(method))
        except ValueError as error:
            raise ValueError(f"{method}: {error}") from error


@dataclass(frozen=True)
class Layout:
    """Where the columns stand: names of rows if there are any, the image, and one for every method."""

    methods: Sequence[str]
    names: int

    @property
    def side(self) -> int:
        """The longer edge of a picture: the more methods, the smaller."""
        return min(LARGEST, WIDEST // (len(self.methods) + 1) - GAP)

    @property
    def heads(self) -> list[list[str]]:
        return [_head(name, self.side) for name in ("the image", *self.methods)]

    @property
    def top(self) -> int:
        """Where the first row begins."""
        return MARGIN + LINE * max(map(len, self.heads)) + 8

    def left(self, place: int) -> int:
        return MARGIN + self.names + place * (self.side + GAP)

    def canvas(self, heights: Sequence[int]) -> Canvas:
        """A sheet for rows of these heights, with the heads of the columns on it."""
        height = self.top + sum(heights) + SPACE * (len(heights) - 1) + FOOTER + MARGIN
        canvas = Canvas(self.left(len(self.methods) + 1) - GAP + MARGIN, height)
        for place, lines in enumerate(self.heads):
            for above, line in enumerate(reversed(lines)):
                at = (self.left(place), self.top - 13 - LINE * above)
                canvas.text(at, line, size=SMALL, colour=MUTED, width=self.side)
        return canvas


def comparison_grid(
    images: Sequence[Tensor] | Tensor,
    heatmaps: Mapping[str, Sequence[Tensor | None] | Tensor],
    *,
    truth: Sequence[Tensor | None] | Tensor | None = None,
    boxes: Mapping[str, Sequence[Box | None]] | None = None,
    titles: Sequence[str] | None = None,
    captions: Sequence[str] | None = None,
) -> Image.Image:
    """Images (3 or 1, H, W) uint8, and for every method heatmaps (H, W) in [0, 1], one an image.

    A heatmap that is None leaves an empty tile. `truth` has (H, W) bool or None for every image, `boxes` for
    all or some methods (left, top, right, bottom) in pixels. A row is named by its title, the class say, and
    in smaller letters its caption, the file say; sizes of images may differ from row to row.
    """
    boxes = boxes or {}
    _check(len(images), heatmaps, boxes, truth=truth, titles=titles, captions=captions)
    none = [None] * len(images)
    rows = [
        Row(
            image,
            {method: maps[index] for method, maps in heatmaps.items()},
            {method: given[index] for method, given in boxes.items()},
            (none if truth is None else truth)[index],
            Words(titles[index] if titles else "", captions[index] if captions else "", NAME - 24),
        )
        for index, image in enumerate(images)
    ]
    return _drawn(rows, Layout(list(heatmaps), NAME if titles or captions else 0))


def _head(name: str, width: int) -> list[str]:
    """The lines of a head; a long name without spaces keeps its end, where the names of folders differ."""
    if " " in name:
        return wrapped(name, width, font(SMALL), lines=2)
    return [fitted(name, width, font(SMALL), tail=9)]


def _drawn(rows: Sequence[Row], layout: Layout) -> Image.Image:
    canvas = layout.canvas([row.height(layout.side) for row in rows])
    top = layout.top
    for row in rows:
        row.words.draw(canvas, (MARGIN, top))
        for place, picture in enumerate(row.pictures(layout.side)):
            if picture is None:
                _draw_failed(canvas, (layout.left(place), top), extent(row.image, layout.side))
            else:
                canvas.tile((layout.left(place), top), picture, layout.side)
        top += row.height(layout.side) + SPACE
    _draw_footer(canvas, rows)
    return canvas.image


def _draw_failed(canvas: Canvas, at: tuple[int, int], size: tuple[int, int]) -> None:
    """An empty tile as large as the picture would be, but wide enough for its words."""
    left, top = at
    width, height = max(size[0], NARROWEST), max(size[1], LINE)
    canvas.tile(at, _plain(HAIRLINE, width, height), max(width, height))
    middle = (left + width / 2, top + height / 2)
    canvas.text(middle, FAILED, size=SMALL, colour=MUTED, anchor="mm")


def _draw_footer(canvas: Canvas, rows: Sequence[Row]) -> None:
    """What the colours mean, and the lines that are drawn."""
    middle, left = canvas.image.height - MARGIN - 9, MARGIN + KEY + 34
    draw_key(canvas, (MARGIN, middle), KEY)
    ground = _plain(QUIET, 60, 36)
    if any(row.truth is not None for row in rows):
        inside = torch.zeros(36, 60, dtype=torch.bool)
        inside[6:30, 8:52] = True
        left = _draw_sample(canvas, (left, middle), outlined(ground, inside, width=2), "truth")
    if any(box is not None for row in rows for box in row.boxes.values()):
        _draw_sample(canvas, (left, middle), boxed(ground, (8, 6, 52, 30), width=2), "box")


def _draw_sample(canvas: Canvas, at: tuple[int, int], sample: Tensor, word: str) -> int:
    """A small picture and what its line means; gives the place where the next may stand."""
    left, middle = at
    canvas.tile((left, middle - 9), sample, 30)
    canvas.text((left + 38, middle), word, size=SMALL, colour=MUTED, anchor="lm")
    return left + 38 + round(font(SMALL).getlength(word)) + 24


def _plain(colour: str, width: int, height: int) -> Tensor:
    paint = torch.tensor(ImageColor.getrgb(colour)[:3], dtype=torch.uint8)
    return paint.view(3, 1, 1).expand(3, height, width)


def _check(
    count: int,
    heatmaps: Mapping[str, Sequence[Tensor | None] | Tensor],
    boxes: Mapping[str, Sequence[Box | None]],
    **others: Sequence[object] | Tensor | None,
) -> None:
    if not count:
        raise ValueError("comparison_grid needs at least one image")
    if not heatmaps:
        raise ValueError("comparison_grid needs at least one method")
    if unknown := [method for method in boxes if method not in heatmaps]:
        raise ValueError(f"boxes for {unknown}, but the heatmaps are of {list(heatmaps)}")
    given: dict[str, Sequence[object] | Tensor | None] = dict(others)
    given |= {f"heatmaps of {method}": maps for method, maps in heatmaps.items()}
    given |= {f"boxes of {method}": frames for method, frames in boxes.items()}
    for name, values in given.items():
        if values is not None and len(values) != count:
            raise ValueError(f"{len(values)} {name} for {count} images; each image needs one")
