"""The same images as several methods explain them: one row an image, one column a method.

At the left the image itself; the truth, where there is one, is drawn in every picture of its row, so that it
can be seen who found the object. A column may be of another network than its neighbour: what each answered
can stand beneath its picture. Making the heatmaps is left to interpretation, colouring them to `overlay`, the
lines to `outline`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas, extent
from dprotonet.figures.legend import FOOTER, draw_legend, plain
from dprotonet.figures.outline import Box, Truth, marked
from dprotonet.figures.overlay import overlay
from dprotonet.figures.style import AGAINST, GAP, HAIRLINE, MARGIN, MUTED, SMALL, fitted, font, wrapped
from dprotonet.figures.words import Words

NAME = 216  # width of the column of titles and captions
WIDEST, LARGEST = 2000, 248  # of all pictures of a row together, and of one
SPACE = 22  # between two rows
LINE = 21  # height of a line of a column's head, and of an answer
FAILED, NARROWEST = "no heatmap", 112  # what an empty tile says, and the room that takes
RIGHT, WRONG = "✓", "✗"


class GridAnswer(NamedTuple):
    """What a network took an image for, and whether that is right, where it is known."""

    text: str
    right: bool | None = None

    def draw(self, canvas: Canvas, at: tuple[int, int], width: int) -> None:
        """One line beneath a picture; a wrong answer is marked and coloured."""
        mark = "" if self.right is None else f"{RIGHT if self.right else WRONG} "
        colour = AGAINST if self.right is False else MUTED
        canvas.text(at, f"{mark}{self.text}", size=SMALL, colour=colour, width=width, tail=6)


@dataclass(frozen=True)
class GridRow:
    """One image and what stands beside it; heatmaps, boxes and answers by the name of their method."""

    image: Tensor
    heatmaps: Mapping[str, Tensor | None]
    boxes: Mapping[str, Box | None]
    truth: Truth | None
    answers: Mapping[str, GridAnswer | None]
    words: Words

    def height(self, side: int) -> int:
        beneath = LINE if self.answers else 0
        return max(extent(self.image, side)[1] + beneath, self.words.height)

    def pictures(self, side: int) -> list[Tensor | None]:
        """The image, then the overlay of every method, None where it has no heatmap."""
        first = marked(self.image, side=side, truth=self.truth)
        return [first, *(self._overlay(method, side) for method in self.heatmaps)]

    def _overlay(self, method: str, side: int) -> Tensor | None:
        heatmap = self.heatmaps[method]
        if heatmap is None:
            return None
        try:
            shown, box = overlay(self.image, heatmap), self.boxes.get(method)
            return marked(shown, side=side, truth=self.truth, box=box)
        except ValueError as error:
            raise ValueError(f"{method}: {error}") from error


@dataclass(frozen=True)
class Layout:
    """Where the columns stand: names of rows if there are any, the image, and one for every method."""

    methods: Sequence[str]
    names: int
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def side(self) -> int:
        """The longer edge of a picture: the more methods, the smaller."""
        return min(LARGEST, WIDEST // (len(self.methods) + 1) - GAP)

    @property
    def heads(self) -> list[list[str]]:
        """The lines above every column: a method's name, beneath it its note."""
        noted = [[fitted(self.notes.get(name, ""), self.side, font(SMALL))] for name in self.methods]
        below = [[""], *noted] if self.notes else [[]] * (len(self.methods) + 1)
        names = [_head(name, self.side) for name in ("the image", *self.methods)]
        return [[*name, *note] for name, note in zip(names, below, strict=True)]

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
    truth: Sequence[Truth | None] | Tensor | None = None,
    boxes: Mapping[str, Sequence[Box | None]] | None = None,
    answers: Mapping[str, Sequence[GridAnswer | None]] | None = None,
    notes: Mapping[str, str] | None = None,
    titles: Sequence[str] | None = None,
    captions: Sequence[str] | None = None,
) -> Image.Image:
    """Images (3 or 1, H, W) uint8, and for every method heatmaps (H, W) in [0, 1], one an image.

    A heatmap that is None leaves an empty tile. Boxes are (left, top, right, bottom) in pixels. Of every
    image: `truth`, either (H, W) bool, outlined in white, or boxes, red, or None; `titles`, the class say,
    and in smaller letters `captions`, the file say, name its row. Of all or some methods, by name: `boxes`,
    the one found in every image or None, yellow; `answers`, what the network answered to every image, wrong
    ones marked; `notes`, a line beneath the name, the network say. Sizes of images may differ from row to
    row, and images and networks may be of several data sets.
    """
    boxes, answers, notes = boxes or {}, answers or {}, notes or {}
    _check(len(images), truth=truth, titles=titles, captions=captions)
    _check_methods(len(images), heatmaps, boxes=boxes, answers=answers)
    _check_known(heatmaps, notes=notes)
    none = [None] * len(images)
    rows = [
        GridRow(
            image,
            {method: maps[index] for method, maps in heatmaps.items()},
            {method: given[index] for method, given in boxes.items()},
            (none if truth is None else truth)[index],
            {method: given[index] for method, given in answers.items()},
            Words(titles[index] if titles else "", captions[index] if captions else "", NAME - 24),
        )
        for index, image in enumerate(images)
    ]
    return _drawn(rows, Layout(list(heatmaps), NAME if titles or captions else 0, notes))


def _head(name: str, width: int) -> list[str]:
    """The lines of a head; a long name without spaces keeps its end, where the names of folders differ."""
    if " " in name:
        return wrapped(name, width, font(SMALL), lines=2)
    return [fitted(name, width, font(SMALL), tail=9)]


def _drawn(rows: Sequence[GridRow], layout: Layout) -> Image.Image:
    canvas = layout.canvas([row.height(layout.side) for row in rows])
    top = layout.top
    for row in rows:
        _draw_row(canvas, row, layout, top)
        top += row.height(layout.side) + SPACE
    draw_legend(
        canvas,
        truths=[row.truth for row in rows],
        boxes=any(box is not None for row in rows for box in row.boxes.values()),
    )
    return canvas.image


def _draw_row(canvas: Canvas, row: GridRow, layout: Layout, top: int) -> None:
    size = extent(row.image, layout.side)
    row.words.draw(canvas, (MARGIN, top))
    for place, picture in enumerate(row.pictures(layout.side)):
        if picture is None:
            _draw_failed(canvas, (layout.left(place), top), size)
        else:
            canvas.tile((layout.left(place), top), picture, layout.side)
    for place, method in enumerate(layout.methods, start=1):
        if (answer := row.answers.get(method)) is not None:
            answer.draw(canvas, (layout.left(place), top + size[1] + 17), layout.side)


def _draw_failed(canvas: Canvas, at: tuple[int, int], size: tuple[int, int]) -> None:
    """An empty tile as large as the picture would be, but wide enough for its words."""
    left, top = at
    width, height = max(size[0], NARROWEST), max(size[1], LINE)
    canvas.tile(at, plain(HAIRLINE, width, height), max(width, height))
    middle = (left + width / 2, top + height / 2)
    canvas.text(middle, FAILED, size=SMALL, colour=MUTED, anchor="mm")


def _check(count: int, **given: Sequence[object] | Tensor | None) -> None:
    if not count:
        raise ValueError("comparison_grid needs at least one image")
    for name, values in given.items():
        if values is not None and len(values) != count:
            raise ValueError(f"{len(values)} {name} for {count} images; each image needs one")


def _check_methods(
    count: int,
    heatmaps: Mapping[str, Sequence[Tensor | None] | Tensor],
    **others: Mapping[str, Sequence[object]],
) -> None:
    if not heatmaps:
        raise ValueError("comparison_grid needs at least one method")
    _check_known(heatmaps, **others)
    _check(count, **{f"heatmaps of {method}": maps for method, maps in heatmaps.items()})
    for name, given in others.items():
        _check(count, **{f"{name} of {method}": values for method, values in given.items()})


def _check_known(heatmaps: Mapping[str, object], **others: Mapping[str, object]) -> None:
    for name, given in others.items():
        if unknown := [method for method in given if method not in heatmaps]:
            raise ValueError(f"{name} for {unknown}, but the heatmaps are of {list(heatmaps)}")
