"""The right half of a sheet about a decision: similarity × weight = points a row, adding up to the logit.

A ledger knows where its columns and rows lie and draws the numbers and the staircase; what stands at the head
of each row, a prototype's picture and name, is left to the sheets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.decimals import factor_decimals, point_decimals, shares
from dprotonet.figures.decision import Decision
from dprotonet.figures.style import GAP, INK, MUTED, SMALL, number
from dprotonet.figures.waterfall import Waterfall, side

HEADS = 36  # height of the heads of the columns
LINE = 54  # height of a row of text
WEIGHT = 114  # from the right edge of a weight back to that of its similarity
FACTORS = 188  # room for similarity × weight with all their decimals


@dataclass(frozen=True)
class Ledger:
    """Where the columns and rows lie, in pixels from the left and the top of the sheet."""

    left: int  # where the words begin
    factors: int  # right edge of "similarity × weight"
    top: int
    row: int  # height of a prototype's row
    numbers: int  # middle of the numbers and the bar, from the top of their row
    width: int = 420  # of the staircase

    @property
    def points(self) -> int:
        """The right edge of the points."""
        return self.factors + 128

    @property
    def stairs(self) -> int:
        """Where the staircase begins."""
        return self.points + 36

    @property
    def right(self) -> int:
        """Where the staircase, and with it the ledger, ends."""
        return self.stairs + self.width

    def bottom(self, count: int) -> int:
        """Where the sum beneath so many rows ends."""
        return self.top + HEADS + count * self.row + 2 * LINE + GAP

    def tops(self, count: int) -> list[int]:
        """Where each row begins, and after them all others together."""
        return [self.top + HEADS + place * self.row for place in range(count + 1)]

    def draw(self, canvas: Canvas, decision: Decision) -> None:
        """Heads, numbers and bars of every row, the rest, and the sum beneath a heavy rule."""
        steps = decision.steps
        *tops, end = self.tops(len(decision.rows))
        middles = [*(top + self.numbers for top in tops), end + LINE // 2]
        total = middles[-1] + LINE + GAP
        self._draw_heads(canvas, decision)
        Waterfall(steps, left=self.stairs, width=self.width).draw(
            canvas, middles, top=self.top + 30, total=total
        )
        decimals = point_decimals([*steps, decision.logit])
        self._draw_factors(canvas, middles, decision, points=decimals)
        self._draw_points(canvas, middles, steps, decimals=decimals)
        others = "all other prototypes together" if decision.rows else "all prototypes together"
        others = decision.others or others
        canvas.text((self.left, middles[-1]), others, anchor="lm", colour=MUTED)
        self._draw_total(canvas, total, decision, decimals=decimals)

    def _draw_heads(self, canvas: Canvas, decision: Decision) -> None:
        baseline, points = self.top + 14, "points"
        if decision.rows:
            points = "= points"
            canvas.text(
                (self.factors, baseline), "similarity × weight", size=SMALL, colour=MUTED, anchor="rs"
            )
        canvas.text((self.points, baseline), points, size=SMALL, colour=MUTED, anchor="rs")
        heading = "adding up" + (f" for {decision.subject}" if decision.subject else "")
        canvas.text((self.stairs, baseline), heading, size=SMALL, colour=MUTED, width=self.width)

    def _draw_factors(
        self, canvas: Canvas, middles: Sequence[int], decision: Decision, *, points: int
    ) -> None:
        factors = [(row.similarity, row.weight) for row in decision.rows]
        decimals = factor_decimals(factors, points=points)
        for (similarity, weight), middle in zip(factors, middles, strict=False):
            for place, factor in ((self.factors - WEIGHT, similarity), (self.factors, weight)):
                canvas.text((place, middle), number(factor, decimals=decimals), anchor="rm")
            for place, sign in ((self.factors - WEIGHT + 18, "×"), (self.factors + 22, "=")):
                canvas.text((place, middle), sign, anchor="mm", colour=MUTED)

    def _draw_points(
        self, canvas: Canvas, middles: Sequence[int], steps: Sequence[float], *, decimals: int
    ) -> None:
        for middle, step, share in zip(middles, steps, shares(steps, decimals=decimals), strict=True):
            shown = number(share, decimals=decimals, signed=True)
            canvas.text((self.points, middle), shown, anchor="rm", colour=side(step), bold=True)

    def _draw_total(self, canvas: Canvas, middle: int, decision: Decision, *, decimals: int) -> None:
        rule = middle - LINE // 2 - GAP + 6
        canvas.rule((self.left, rule), (self.right, rule), colour=INK, width=2)
        name = "sum of all points = logit" + (f" of {decision.subject}" if decision.subject else "")
        canvas.text((self.left, middle), name, anchor="lm", bold=True, width=self.points - self.left - 110)
        logit = number(decision.logit, decimals=decimals)
        canvas.text((self.points, middle), logit, anchor="rm", bold=True)
