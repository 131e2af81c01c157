"""The learning curve as places on a drawing: where lines, dots, ticks and pushes lie.

Nothing here has a colour or a tag; the template turns these numbers into SVG and the stylesheet paints it, so
that the chart follows the page's light and dark. A chart by matplotlib (figures.curve draws one for files)
has its colours fixed, carries its letters as outlines and is many times as large in a page that stands alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dprotonet.report.content import Curve
from dprotonet.report.words import percent

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 16, 44  # margins
LABELS = 12  # so many epochs are named at most
DOTTED = 40  # up to so many epochs each has a dot

Point = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class DrawnPush:
    x: float
    before: float
    after: float


@dataclass(frozen=True)
class Chart:
    """A drawing of WIDTH × HEIGHT."""

    train: tuple[Point, ...]
    val: tuple[Point, ...]
    dotted: bool
    epochs: tuple[Tick, ...]
    shares: tuple[Tick, ...]
    pushes: tuple[DrawnPush, ...]
    kept: float | None
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def chart(curve: Curve) -> Chart:
    """Epochs from left to right, accuracy upwards from a round share below the lowest to 100 %."""
    effects = [share for push in curve.pushes for share in (push.before, push.after)]
    floor = _floor([*curve.train, *curve.val, *effects])
    places = [*curve.epochs, *(push.epoch for push in curve.pushes)]
    first, last = min(places), max(places)

    def x(epoch: float) -> float:
        along = (epoch - first) / (last - first) if last > first else 0.5
        return round(LEFT + 12 + along * (WIDTH - LEFT - RIGHT - 24), 1)

    def y(share: float) -> float:
        up = (share - floor) / (1 - floor)
        return round(HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP), 1)

    def line(shares: Sequence[float]) -> tuple[Point, ...]:
        return tuple((x(epoch), y(share)) for epoch, share in zip(curve.epochs, shares, strict=True))

    return Chart(
        train=line(curve.train),
        val=line(curve.val),
        dotted=len(curve.epochs) <= DOTTED,
        epochs=tuple(Tick(x(epoch), str(epoch)) for epoch in _named(sorted(set(curve.epochs)))),
        shares=tuple(Tick(y(share), percent(share, 0)) for share in _shares(floor)),
        pushes=tuple(DrawnPush(x(push.epoch), y(push.before), y(push.after)) for push in curve.pushes),
        kept=None if curve.kept is None else x(curve.kept),
    )


def _floor(shares: Sequence[float]) -> float:
    """A round share below all of them that leaves a fifth in view, so that few data do not look dramatic."""
    return max(0.0, min(0.8, int(min(shares) * 10) / 10))


def _shares(floor: float) -> list[float]:
    step = 0.2 if floor < 0.5 else 0.1 if floor < 0.75 else 0.05
    count = int((1 - floor) / step + 1e-9)
    return [1 - step * number for number in range(count + 1)]


def _named(epochs: Sequence[int]) -> list[int]:
    """Epochs that get a label: at equal distances, as many as are readable."""
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 500, 10**6) if len(epochs) <= LABELS * size)
    chosen = [epoch for epoch in epochs if epoch % step == 0]
    return chosen or [epochs[0]]
