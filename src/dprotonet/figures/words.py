"""A title, beneath it a caption, perhaps a notice above both, broken into lines that fit their column.

Also what evidence says of a part that has a name. Long sentences are wrapped; a single long word is likely
the name of a file, and keeps its end.
"""

from dataclasses import dataclass

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.notice import Notice
from dprotonet.figures.style import BODY, MUTED, SMALL, fitted, font, wrapped

MOST_TITLE, MOST_CAPTION = 3, 4  # lines
NOTICE = 8  # pixels between the notice and the title
ENDING = 9  # characters of a file name that are kept: "00017.jpg"


LETTERED = "part "  # how a part is called that has a letter for a name


def looks_like(part: str) -> str:
    """What stands between an image and a prototype: "its beak, like the beak of"; also right for "legs"."""
    if not part:
        return "looks like"
    return f"its {part}, like {part if part.startswith(LETTERED) else f'the {part}'} of"


@dataclass(frozen=True)
class Words:
    """A notice, a title, beneath it a caption, broken into lines that are no wider than `width` pixels.

    Where a caption has line breaks of its own they are kept.
    """

    title: str
    caption: str
    width: int
    notice: str = ""

    @property
    def lines(self) -> list[tuple[str, bool]]:
        """Each line, and whether it belongs to the title."""
        title = self._broken(self.title, bold=True)
        caption = [line for part in self.caption.splitlines() for line in self._broken(part, bold=False)]
        return [*((line, True) for line in title), *((line, False) for line in caption[:MOST_CAPTION])]

    @property
    def height(self) -> int:
        room = NOTICE + self._notice.height if self.notice else 0
        return sum(24 if bold else 21 for _, bold in self.lines) + room

    @property
    def _notice(self) -> Notice:
        return Notice(self.notice, self.width)

    def draw(self, canvas: Canvas, at: tuple[int, int]) -> None:
        """The lines downwards from `at`."""
        left, top = at
        if self.notice:
            self._notice.draw(canvas, (left, top))
            top += self._notice.height + NOTICE
        for line, bold in self.lines:
            if bold:
                canvas.text((left, top + 18), line, bold=True)
            else:
                canvas.text((left, top + 17), line, size=SMALL, colour=MUTED)
            top += 24 if bold else 21

    def _broken(self, text: str, *, bold: bool) -> list[str]:
        typeface = font(BODY if bold else SMALL, bold)
        if " " in text:
            return wrapped(text, self.width, typeface, lines=MOST_TITLE if bold else MOST_CAPTION)
        return [fitted(text, self.width, typeface, tail=ENDING)]
