"""A few words of caution on a sheet: an amber mark, and beside it the words on as many lines as they take."""

from dataclasses import dataclass

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.style import CAUTION, CAUTION_INK, SMALL, font, wrapped

LINE, MARK, INDENT, BENEATH = 21, 4, 14, 8  # pixels: a line, the mark's width, the words, room that follows
MOST = 6  # lines


@dataclass(frozen=True)
class Notice:
    """Words no wider than `width` pixels, mark included; without words there is nothing, not even room."""

    words: str
    width: int

    @property
    def lines(self) -> list[str]:
        return wrapped(self.words, self.width - INDENT, font(SMALL), lines=MOST) if self.words else []

    @property
    def height(self) -> int:
        return len(self.lines) * LINE + BENEATH if self.words else 0

    def draw(self, canvas: Canvas, at: tuple[int, int]) -> None:
        """Downwards from `at`."""
        left, top = at
        for place, line in enumerate(self.lines):
            start = top + place * LINE
            canvas.bar((left, start), (left + MARK, start + LINE), CAUTION)
            canvas.text((left + INDENT, start + 16), line, size=SMALL, colour=CAUTION_INK)
