"""Why this class and not that one: both sides of every difference, what speaks against the class first.

At left the image, where the two classes are told apart in it, and the sentence that the numbers make; then
one row a part or prototype: its place in the image, in a training image of either class, the points that it
adds to both, and the difference as a bar to the right (for the class) or to the left (against it).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.notice import Notice
from dprotonet.figures.overlay import draw_key, draw_sides
from dprotonet.figures.style import (
    AGAINST,
    BODY,
    FOR,
    INK,
    MARGIN,
    MUTED,
    QUIET,
    SMALL,
    TITLE,
    font,
    number,
    wrapped,
)

PICTURE = 340  # edge of the image, and of the map beneath it
LEFT = MARGIN + PICTURE + 56
THUMB, ROW, APART = 118, 136, 12
NAME = LEFT + 3 * (THUMB + APART) + 8
COLUMNS = (NAME + 236, NAME + 352)  # right edges of the points for either class
BARS, WIDTH = NAME + 448, 280  # where the bars begin, after room for a number, and how far both sides reach
TOP = MARGIN + 66
HEADS, LINE, NEAR = 62, 34, 164
RIGHT = BARS + WIDTH + 92


@dataclass(frozen=True)
class ContrastSheetRow:
    """Points that one part or prototype adds for either class; pictures (3, H, W) uint8, None for none."""

    name: str
    points: float
    other_points: float
    place: Tensor | None
    source: Tensor | None
    other_source: Tensor | None
    mark: str = ""  # how reliable the place is
    warning: str = ""  # which training image's place does not look like it, if one does not


@dataclass(frozen=True)
class NearestPicture:
    """A training image of one of the classes that the image is most like."""

    class_name: str
    name: str
    image: Tensor  # (3, H, W) uint8


@dataclass(frozen=True)
class ContrastSheet:
    """What the sheet says; `folded` is how many rows are left out, and what they add for and against."""

    title: str
    class_name: str
    versus: str
    roles: tuple[str, str]  # what each class is: "predicted", "the truth"
    logits: tuple[float, float]
    rows: Sequence[ContrastSheetRow]
    folded: tuple[int, float, float]
    sentence: str
    agreeing: str = ""
    nearest: Sequence[NearestPicture] = ()
    sides: bool = False  # whether the colours of the map are those of the two classes

    def __post_init__(self) -> None:
        apart = sum(row.points - row.other_points for row in self.rows) + sum(self.folded[1:])
        if abs(apart - (self.logits[0] - self.logits[1])) > 1e-2:
            raise ValueError(
                f"the differences add up to {apart:g}, but the logits are {self.logits[0]:g} and "
                f"{self.logits[1]:g}"
            )


def contrast_sheet(image: Tensor, contrast_map: Tensor, sheet: ContrastSheet) -> Image.Image:
    """The sheet for an image (3, H, W) uint8 and the same with its contrast map over it."""
    words = _words(sheet)
    left_end = TOP + 2 * (PICTURE + 44) + 24 * len(words) + (NEAR + 80 if sheet.nearest else 0) + 40
    canvas = Canvas(RIGHT + MARGIN, max(left_end, TOP + HEADS + len(sheet.rows) * ROW + 6 * LINE) + MARGIN)
    canvas.text((MARGIN, MARGIN + 22), sheet.title, size=TITLE, bold=True, width=RIGHT - MARGIN)
    _draw_left(canvas, image, contrast_map, sheet, words)
    _draw_heads(canvas, sheet)
    most = max((abs(row.points - row.other_points) for row in sheet.rows), default=1.0) or 1.0
    for place, row in enumerate(sheet.rows):
        _draw_row(canvas, row, TOP + HEADS + place * ROW + ROW // 2, most)
    _draw_sums(canvas, sheet, TOP + HEADS + len(sheet.rows) * ROW + LINE // 2)
    return canvas.image


def _words(sheet: ContrastSheet) -> list[str]:
    return wrapped(sheet.sentence, PICTURE, font(BODY), lines=12) if sheet.sentence else []


def _draw_left(
    canvas: Canvas, image: Tensor, contrast_map: Tensor, sheet: ContrastSheet, words: Sequence[str]
) -> None:
    canvas.picture((MARGIN, TOP), image, PICTURE)
    below = TOP + PICTURE + 26
    canvas.text(
        (MARGIN, below),
        "where the model tells the two apart",
        size=SMALL,
        colour=MUTED,
        width=PICTURE,
    )
    canvas.picture((MARGIN, below + 12), contrast_map, PICTURE)
    below += PICTURE + 26
    if sheet.sides:
        draw_sides(canvas, (MARGIN, below), (sheet.class_name, sheet.versus), PICTURE)
    else:
        draw_key(canvas, (MARGIN, below), PICTURE)
    below += 54
    for place, line in enumerate(words):
        canvas.text((MARGIN, below + 24 * place), line)
    below += 24 * len(words) + 20
    for place, near in enumerate(sheet.nearest):
        at = MARGIN + place * (NEAR + 12)
        canvas.text((at, below), "nearest training image", size=SMALL - 2, colour=MUTED, width=NEAR)
        canvas.picture((at, below + 8), near.image, NEAR)
        canvas.text((at, below + NEAR + 28), near.class_name, size=SMALL, bold=True, width=NEAR)
        canvas.text((at, below + NEAR + 46), near.name, size=SMALL - 2, colour=MUTED, width=NEAR, tail=9)


def _draw_heads(canvas: Canvas, sheet: ContrastSheet) -> None:
    names, base = (sheet.class_name, sheet.versus), TOP + 36
    canvas.text((LEFT, base), "this image", size=SMALL, colour=MUTED, width=THUMB)
    for place, (name, role, column) in enumerate(zip(names, sheet.roles, COLUMNS, strict=True)):
        at = LEFT + (place + 1) * (THUMB + APART)
        for lower, line in enumerate(wrapped(name, THUMB, font(SMALL, bold=True), lines=2)):
            canvas.text((at, base - 18 + 18 * lower), line, size=SMALL, bold=True, width=THUMB)
        canvas.text((at, base + 18), "in training", size=SMALL - 2, colour=MUTED, width=THUMB)
        for lower, line in enumerate(wrapped(name, 106, font(SMALL, bold=True), lines=2)):
            canvas.text((column, base - 18 + 18 * lower), line, size=SMALL, bold=True, anchor="rs", width=106)
        canvas.text((column, base + 18), role, size=SMALL - 2, colour=MUTED, anchor="rs", width=106)
    middle = BARS + WIDTH // 2
    canvas.text((middle - 8, base), "against it", size=SMALL, colour=AGAINST, anchor="rs")
    canvas.text((middle + 8, base), f"for {sheet.class_name}", size=SMALL, colour=FOR, width=WIDTH // 2 + 80)


def _draw_row(canvas: Canvas, row: ContrastSheetRow, middle: int, most: float) -> None:
    for place, shown in enumerate((row.place, row.source, row.other_source)):
        if shown is not None:
            canvas.picture((LEFT + place * (THUMB + APART), middle - THUMB // 2), shown, THUMB)
    room = COLUMNS[0] - NAME - 70
    notice = Notice(row.warning, room)
    name = middle - (12 if row.mark else 0) - notice.height // 2
    canvas.text((NAME, name), row.name, bold=True, anchor="lm", width=room)
    canvas.text((NAME, name + 24), row.mark, size=SMALL, colour=MUTED, anchor="lm", width=room)
    notice.draw(canvas, (NAME, name + (38 if row.mark else 16)))
    for column, points in zip(COLUMNS, (row.points, row.other_points), strict=True):
        canvas.text((column, middle), number(points), anchor="rm")
    _draw_bar(canvas, row.points - row.other_points, middle, most)


def _draw_bar(canvas: Canvas, difference: float, middle: int, most: float) -> None:
    zero = BARS + WIDTH // 2
    end = zero + round(difference / most * (WIDTH // 2 - 4))
    colour = FOR if difference >= 0 else AGAINST
    canvas.rule((zero, middle - ROW // 2), (zero, middle + ROW // 2), colour=QUIET)
    canvas.bar((zero, middle - 13), (end, middle + 13), colour)
    said, place = number(difference, signed=True), (end + 8, "lm") if difference >= 0 else (end - 8, "rm")
    canvas.text((place[0], middle), said, colour=colour, bold=True, anchor=place[1])


def _draw_sums(canvas: Canvas, sheet: ContrastSheet, top: int) -> None:
    count, ahead, behind = sheet.folded
    if count:
        words = f"{count} more, none of them larger: {number(ahead, signed=True)} for, "
        canvas.text((LEFT, top + 6), f"{words}{number(behind, signed=True)} against", colour=MUTED)
    top += LINE
    canvas.rule((LEFT, top - 14), (RIGHT, top - 14), colour=INK, width=2)
    canvas.text((LEFT, top + 12), "sum of all points = logit", bold=True, width=COLUMNS[0] - LEFT - 90)
    for column, logit in zip(COLUMNS, sheet.logits, strict=True):
        canvas.text((column, top + 12), number(logit), bold=True, anchor="rs")
    difference = sheet.logits[0] - sheet.logits[1]
    said = f"{number(abs(difference))} ahead: {sheet.class_name if difference >= 0 else sheet.versus}"
    canvas.text((BARS, top + 12), said, bold=True, width=RIGHT - BARS + 20)
    for place, line in enumerate(wrapped(sheet.agreeing, RIGHT - LEFT, font(SMALL), lines=2)):
        canvas.text((LEFT, top + 46 + 22 * place), line, size=SMALL, colour=MUTED)
