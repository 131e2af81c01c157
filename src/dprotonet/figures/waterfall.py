"""A sum as a staircase of bars: each begins where the one above ended, the last spans from zero to the sum.

Beneath lies a scale with its ends named. It never spans less than one point, so that little evidence looks
like little.
"""

import math
from collections.abc import Sequence

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.style import AGAINST, FOR, INK, MUTED, QUIET, SMALL

BAR = 26  # thickness of a bar
LEAST = 1.0  # points that the scale spans
TICK = 6  # length of a tick
APART = 100  # pixels between zero and an end of the scale whose value is told
NOTHING = 1e-9  # points: what is left of a rest of zero after sums of floating-point numbers


class Waterfall:
    """Where each bar begins and ends, on a scale that holds zero and all running sums."""

    def __init__(self, steps: Sequence[float], *, left: float, width: float) -> None:
        self.steps = steps
        self.sums = [sum(steps[:count]) for count in range(len(steps) + 1)]
        self._left, self._width = left, width
        self.low, self.high = _ends(min(self.sums), max(self.sums))

    def x(self, points: float) -> float:
        """The horizontal place of a running sum."""
        return self._left + self._width * (points - self.low) / (self.high - self.low)

    def draw(self, canvas: Canvas, middles: Sequence[float], *, top: float, total: float) -> None:
        """A bar at each height of `middles`, joined by thin risers, and the sum at the height `total`."""
        zero = self.x(0)
        canvas.rule((zero, top), (zero, total + BAR), colour=QUIET)
        heights = [*middles, total]
        for place, step in enumerate(self.steps):
            start, end = self.x(self.sums[place]), self.x(self.sums[place + 1])
            canvas.rule((end, heights[place]), (end, heights[place + 1]), colour=QUIET)
            _draw_bar(canvas, start, end, middle=heights[place], colour=side(step))
        _draw_bar(canvas, zero, self.x(self.sums[-1]), middle=total, colour=INK)
        self._draw_scale(canvas, total + BAR)

    def _draw_scale(self, canvas: Canvas, height: float) -> None:
        zero, beneath = self.x(0), height + TICK
        canvas.rule((self.x(self.low), height), (self.x(self.high), height), colour=QUIET)
        canvas.text((zero, beneath), "0", size=SMALL, colour=MUTED, anchor="mt")
        for end, anchor in ((self.low, "lt"), (self.high, "rt")):
            if abs(self.x(end) - zero) > APART:
                canvas.rule((self.x(end), height - TICK), (self.x(end), height), colour=MUTED)
                canvas.text((self.x(end), beneath), _told(end), size=SMALL, colour=MUTED, anchor=anchor)


def side(step: float) -> str:
    """The colour of points, of their bar and their number alike, whatever they are rounded to."""
    if abs(step) < NOTHING:
        return MUTED
    return AGAINST if step < 0 else FOR


def _ends(lowest: float, highest: float) -> tuple[float, float]:
    """The ends of the scale, with two digits, around the lowest sum (≤ 0) and the highest (≥ 0)."""
    unit = 10.0 ** (math.floor(math.log10(max(highest - lowest, LEAST))) - 1)
    low, high = math.floor(round(lowest / unit, 6)) * unit, math.ceil(round(highest / unit, 6)) * unit
    lacking = max(LEAST - (high - low), 0.0)
    return (low, high + lacking) if highest > -lowest or low == high else (low - lacking, high)


def _told(end: float) -> str:
    points = f"{end:.3g}".replace("-", "−")
    return f"{points} point{'s' * (points != '1')}"


def _draw_bar(canvas: Canvas, start: float, end: float, *, middle: float, colour: str) -> None:
    canvas.bar((start, middle - BAR // 2), (end, middle + BAR // 2), colour)
