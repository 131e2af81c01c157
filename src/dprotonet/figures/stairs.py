"""A sum as a staircase of bars: each begins where the one above ended, the last spans from zero to the sum.

Also the rounding that goes with it, so that the printed numbers add up as the bars do.
"""

import math
from collections.abc import Sequence

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.style import AGAINST, FOR, INK, MUTED, QUIET, SMALL

BAR = 26  # thickness of a bar


class Stairs:
    """Where each bar begins and ends, between the lowest and the highest running sum."""

    def __init__(self, steps: Sequence[float], *, left: float, width: float) -> None:
        self.steps = steps
        self.sums = [sum(steps[:count]) for count in range(len(steps) + 1)]
        self._left, self._width = left, width
        self._low = min(self.sums)
        self._span = max(self.sums) - self._low or 1.0

    def x(self, points: float) -> float:
        """The horizontal place of a running sum."""
        return self._left + self._width * (points - self._low) / self._span

    def draw(self, canvas: Canvas, middles: Sequence[float], *, top: float, total: float) -> None:
        """A bar at each height of `middles`, joined by thin risers, and the sum at the height `total`."""
        zero = self.x(0)
        canvas.rule((zero, top), (zero, total + BAR), colour=QUIET)
        canvas.text((zero, total + BAR + 6), "0", size=SMALL, colour=MUTED, anchor="mt")
        heights = [*middles, total]
        for place, step in enumerate(self.steps):
            start, end = self.x(self.sums[place]), self.x(self.sums[place + 1])
            canvas.rule((end, heights[place]), (end, heights[place + 1]), colour=QUIET)
            _draw_bar(canvas, start, end, middle=heights[place], colour=AGAINST if step < 0 else FOR)
        _draw_bar(canvas, zero, self.x(self.sums[-1]), middle=total, colour=INK)


def _draw_bar(canvas: Canvas, start: float, end: float, *, middle: float, colour: str) -> None:
    canvas.bar((start, middle - BAR // 2), (end, middle + BAR // 2), colour)


def shares(values: Sequence[float], *, decimals: int = 2) -> list[float]:
    """The values rounded so that they add up to their rounded sum; each moves by less than one last digit.

    Rounded one by one, ten numbers and their sum easily disagree in the last digit, and the reader who adds
    them up would find the sheet wrong. So all are rounded down, and those that lost most get one digit back.
    """
    unit = 10.0**-decimals
    floors = [math.floor(value / unit) for value in values]
    missing = round(sum(values) / unit) - sum(floors)
    by_loss = sorted(range(len(values)), key=lambda index: floors[index] - values[index] / unit)
    for index in by_loss[:missing]:
        floors[index] += 1
    return [floor * unit for floor in floors]
