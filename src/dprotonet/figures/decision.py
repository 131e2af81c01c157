"""What a sheet about one decision says, checked: the class probabilities and the points that make the logit.

Also the left half that such sheets share, the input with its predicted classes. The right half, where the
points add up, is the ledger's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.notice import Notice
from dprotonet.figures.style import FOR, HAIRLINE, INK, MARGIN, MUTED, SMALL, TITLE
from dprotonet.percent import percent

PICTURE = 380  # edge of the input
HEADER = 66  # title, and beneath it the heads of the columns
TOP, LEFT = MARGIN + HEADER, MARGIN + PICTURE + 64  # where both halves begin, and the right one
LINE = 34  # height of a probability
PREDICTED = TOP + PICTURE + 36  # baseline of the predicted class


class Entry(Protocol):
    """One prototype's part in a logit: `contribution` is `similarity` times `weight`."""

    @property
    def prototype(self) -> int: ...
    @property
    def similarity(self) -> float: ...
    @property
    def weight(self) -> float: ...
    @property
    def contribution(self) -> float: ...


@dataclass(frozen=True)
class Decision:
    """The logit of the class `explained`, by default the most probable one, as a sum.

    `rest` is what all prototypes without a row contribute together. Numbers that do not add up are refused.
    `notice` is what a reader has to know of the image before believing the rest.
    """

    title: str
    probabilities: Sequence[tuple[str, float]]
    rows: Sequence[Entry]
    rest: float
    logit: float
    explained: str | None = None
    notice: str = ""
    word: str = ""
    """Where an image may have several labels: what is said of the one explained, such as "present"."""
    others: str = ""
    """What the rest is made of, where that is not the other prototypes alone."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if not math.isclose(row.similarity * row.weight, row.contribution, rel_tol=1e-2, abs_tol=1e-2):
                raise ValueError(
                    f"prototype {row.prototype}: similarity {row.similarity:g} × weight {row.weight:g} "
                    f"is not its contribution {row.contribution:g}"
                )
        total = sum(row.contribution for row in self.rows) + self.rest
        if not math.isclose(total, self.logit, rel_tol=1e-3, abs_tol=1e-2):
            raise ValueError(
                f"the contributions and the rest add up to {total:g}, but the logit is {self.logit:g}"
            )

    @property
    def predicted(self) -> str | None:
        """The most probable class, or the label that this is about."""
        if self.word:
            return self.explained
        return max(self.probabilities, key=lambda pair: pair[1])[0] if self.probabilities else None

    @property
    def subject(self) -> str | None:
        """The class whose logit is the sum."""
        return self.predicted if self.explained is None else self.explained

    @property
    def steps(self) -> list[float]:
        """The points of every row and of the rest, which is made free of the caller's rounding."""
        contributions = [row.contribution for row in self.rows]
        return [*contributions, self.logit - sum(contributions)]

    @property
    def bottom(self) -> int:
        """Where the left half ends."""
        return PREDICTED + 24 + self._notice.height + len(self.probabilities) * LINE

    @property
    def _notice(self) -> Notice:
        return Notice(self.notice, PICTURE)

    def draw(self, canvas: Canvas, image: Tensor) -> None:
        """The title, and the left half: the image (3, H, W) uint8 and what it was taken for."""
        canvas.text(
            (MARGIN, MARGIN + 22), self.title, size=TITLE, bold=True, width=canvas.image.width - 2 * MARGIN
        )
        canvas.picture((MARGIN, TOP), image, PICTURE)
        self._notice.draw(canvas, (MARGIN, PREDICTED - 16))
        line = PREDICTED + self._notice.height
        if self.predicted is not None:
            canvas.text((MARGIN, line), self.word or "predicted", size=SMALL, colour=MUTED)
            sure = not self.notice  # under a warning the class is no finding
            ink = INK if sure else MUTED
            canvas.text((MARGIN + 86, line), self.predicted, bold=sure, colour=ink, width=PICTURE - 86)
        below = line + 40
        for place, (name, probability) in enumerate(self.probabilities):
            chosen, middle = name == self.predicted, below + place * LINE
            _draw_probability(canvas, middle, name=name, probability=probability, chosen=chosen)


def _draw_probability(canvas: Canvas, middle: int, *, name: str, probability: float, chosen: bool) -> None:
    ink = INK if chosen else MUTED
    start, full = MARGIN + 172, 136
    canvas.text((MARGIN, middle), name, size=SMALL, colour=ink, width=160, anchor="lm")
    canvas.bar((start, middle - 5), (start + full, middle + 5), HAIRLINE)
    canvas.bar((start, middle - 5), (start + full * probability, middle + 5), FOR if chosen else MUTED)
    canvas.text((MARGIN + PICTURE, middle), percent(probability), size=SMALL, colour=ink, anchor="rm")
