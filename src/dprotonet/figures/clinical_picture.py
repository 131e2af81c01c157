"""One picture for a doctor's viewer: a warning if there is one, the answer, and where its evidence lies.

It shows the patient's own image only. Training images, which are of other people, have no place among the
pictures of a patient. That it is not for diagnosis stands at the top and at the bottom, within the pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.notice import Notice
from dprotonet.figures.overlay import draw_key
from dprotonet.figures.style import (
    CAUTION,
    CAUTION_INK,
    GAP,
    INK,
    MARGIN,
    MUTED,
    SMALL,
    TITLE,
    font,
    wrapped,
)

NOT_FOR_DIAGNOSIS = "NOT FOR DIAGNOSIS"
REASON = "Answer of an experimental classifier. Not a medical device. Read the original image."
LARGE, THUMB = 560, 200  # edges of the two large pictures, and of the small ones
WIDTH = 2 * MARGIN + 2 * LARGE + GAP
BAND = 58  # height of the notice
CAPTIONS, LINE = 5, 21  # lines beneath a small picture, and their height
MOST_ROWS = 5  # small pictures that fit beside one another
FACTS = 3  # lines


@dataclass(frozen=True)
class PlacedEvidence:
    """A place of the image that counted: the image with its heatmap (3, H, W) uint8, and a few words."""

    picture: Tensor
    words: Sequence[str]


@dataclass(frozen=True)
class ClinicalPicture:
    """`image` and `overlay` (3, H, W) uint8: as it is, and with the heat of all evidence shown."""

    image: Tensor
    overlay: Tensor
    answer: str
    probability: str
    others: str  # the other classes and their probabilities
    evidence: Sequence[PlacedEvidence]
    warning: str = ""
    facts: str = ""  # which image, which network, what made the heatmaps

    def draw(self) -> Image.Image:
        """The whole picture, as high as it needs."""
        tops = self._tops()
        canvas = Canvas(WIDTH, tops["end"])
        draw_band(canvas, 0)
        self._warning.draw(canvas, (MARGIN, tops["warning"]))
        self._draw_answer(canvas, tops["answer"])
        for left, shown, head in self._large():
            canvas.text((left, tops["large"] - 10), head, size=SMALL, colour=MUTED)
            canvas.tile((left, tops["large"]), shown, LARGE)
        draw_key(canvas, (MARGIN + LARGE + GAP, tops["key"] + 12), LARGE)
        for place, item in enumerate(self.evidence[:MOST_ROWS]):
            _draw_evidence(canvas, item, (MARGIN + place * (THUMB + GAP), tops["evidence"]))
        for place, line in enumerate(self._fact_lines):
            canvas.text((MARGIN, tops["facts"] + 16 + place * LINE), line, size=SMALL, colour=MUTED)
        draw_band(canvas, tops["end"] - BAND)
        return canvas.image

    def _tops(self) -> dict[str, int]:
        """Where everything begins, downwards."""
        tall = max(_height(self.image, LARGE), _height(self.overlay, LARGE))
        small = max((_height(item.picture, THUMB) + CAPTIONS * LINE for item in self.evidence), default=0)
        heights = {
            "warning": self._warning.height,
            "answer": 72,
            "large": tall,
            "key": 24,
            "evidence": small,
            "facts": LINE * len(self._fact_lines),
        }
        tops, at = {}, BAND + GAP
        for name, height in heights.items():
            at += 34 if name == "large" else 0  # the heads of the pictures
            tops[name] = at
            at += height + GAP
        return {**tops, "end": at + BAND}

    @property
    def _warning(self) -> Notice:
        return Notice(self.warning, WIDTH - 2 * MARGIN)

    @property
    def _fact_lines(self) -> list[str]:
        return wrapped(self.facts, WIDTH - 2 * MARGIN, font(SMALL), lines=FACTS) if self.facts else []

    def _draw_answer(self, canvas: Canvas, top: int) -> None:
        room, finding = WIDTH - 2 * MARGIN, not self.warning  # under a warning the class is no finding
        size, ink = (TITLE, INK) if finding else (SMALL, MUTED)
        share, right = self.probability, WIDTH - MARGIN
        canvas.text((MARGIN, top + 30), self.answer, size=size, bold=finding, colour=ink, width=room - 420)
        canvas.text((right, top + 30), share, size=size, bold=finding, colour=ink, anchor="rs")
        canvas.text((MARGIN, top + 62), self.others, size=SMALL, colour=MUTED, width=room)

    def _large(self) -> list[tuple[int, Tensor, str]]:
        where = "where the evidence lies that is shown below"
        return [(MARGIN, self.image, "the image"), (MARGIN + LARGE + GAP, self.overlay, where)]


def draw_band(canvas: Canvas, top: int) -> None:
    """The notice across the whole width."""
    canvas.bar((0, top), (canvas.image.width, top + BAND), CAUTION)
    canvas.text((MARGIN, top + 40), NOT_FOR_DIAGNOSIS, size=TITLE, bold=True, colour=INK)
    canvas.text((canvas.image.width - MARGIN, top + 38), REASON, size=SMALL, colour=INK, anchor="rs")


def _draw_evidence(canvas: Canvas, item: PlacedEvidence, at: tuple[int, int]) -> None:
    left, top = at
    canvas.tile(at, item.picture, THUMB)
    below = top + _height(item.picture, THUMB)
    for place, line in enumerate(item.words[:CAPTIONS]):
        colour = CAUTION_INK if line.startswith("!") else MUTED
        canvas.text((left, below + 17 + place * LINE), line, size=SMALL, colour=colour, width=THUMB)


def _height(image: Tensor, side: int) -> int:
    height, width = image.shape[-2:]
    return max(1, round(height * side / max(height, width)))
