"""Are stated probabilities true? What share of the answers was right, over how sure they were.

A dot on the diagonal is a group of answers that are right as often as they say; below it they are too sure.
The bar through a dot is where the share may truly lie, so that a group of three images does not look like a
finding. Counting is left to the metrics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from dprotonet.figures.chart import blank, headline, rendered
from dprotonet.figures.style import FOR, HAIRLINE, INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class ReliabilityGroup:
    """Answers of like probability: the mean of it, the share that is right with its interval, how many."""

    stated: float
    right: float
    low: float
    high: float
    images: int


def reliability_figure(groups: Sequence[ReliabilityGroup], *, title: str | None = None) -> Image.Image:
    """A dot for each group that has images, with its 95 % interval and number of images."""
    if not groups or any(group.images < 1 for group in groups):
        raise ValueError("a reliability diagram needs groups of one image at least")
    figure, axes = blank(6.2, 6.2 + (0.4 if title else 0))
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.text(0.03, 0.06, "right as often as stated", color=MUTED, fontsize=9, rotation=45)
    _draw(axes, groups)
    _calm(axes)
    headline(axes, title)
    return rendered(figure)


def _draw(axes: "Axes", groups: Sequence[ReliabilityGroup]) -> None:
    """Dots as large as their groups; numbers of images in a line of their own below."""
    stated = [group.stated for group in groups]
    right = [group.right for group in groups]
    most = max(group.images for group in groups)
    low, high = [group.low for group in groups], [group.high for group in groups]
    axes.vlines(stated, low, high, color=FOR, linewidth=1.6, alpha=0.6)
    sizes = [30 + 170 * group.images / most for group in groups]
    axes.scatter(stated, right, s=sizes, color=FOR, edgecolors=PAPER, linewidths=1, zorder=3)
    last = -1.0
    for place, group in sorted(zip(stated, groups, strict=True), key=lambda pair: pair[0]):
        row = -0.045 if place - last > 0.055 else -0.085  # numbers that would touch stand on two lines
        last = place if row > -0.05 else last
        axes.text(place, row, str(group.images), ha="center", va="center", fontsize=8, color=INK)


def _calm(axes: "Axes") -> None:
    from matplotlib.ticker import FixedLocator, PercentFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator([0, 0.2, 0.4, 0.6, 0.8, 1]))
        axis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axes.grid(color=HAIRLINE)
    axes.set_axisbelow(True)
    axes.set_xlim(-0.01, 1.02)
    axes.set_ylim(-0.11, 1.02)
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    axes.set_xlabel("probability stated for the predicted class (below dots: number of images)", color=MUTED)
    axes.set_ylabel("share that was right, with 95 % interval", color=MUTED)
