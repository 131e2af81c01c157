"""How a class probability falls while the hottest pixels vanish, and rises while they come back.

Two panels, deletion and insertion, one mean line a method with the 95 % band of the mean, and the area under
it in the legend. Making the curves is left to the metrics.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from PIL import Image
from torch import Tensor

from dprotonet.figures.chart import banner, headline, panels, rendered
from dprotonet.figures.method_lines import (
    Mean,
    calm,
    check_rows,
    draw_means,
    legend_lines,
    mean_of,
    plain_text,
)
from dprotonet.figures.style import MUTED, font

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

ROOM, HANDLE = 740, 95  # pixels: width of a legend, and of a line in it with the space around
BENEATH = 0.56  # inches from the axes to their legend
LETTERS = 19  # pixels: size of its letters
LOWEST = 0.2  # the least that the vertical axis spans, so that noise does not look dramatic


def faithfulness_curves(
    deletion: Mapping[str, Tensor],
    insertion: Mapping[str, Tensor],
    *,
    title: str | None = None,
    measured: str | None = None,
) -> Image.Image:
    """The mean curves of every method; each has curves (N, S + 1) of probabilities, or of what is `measured`.

    The first method of `deletion` is the featured one. A row with a NaN is left out, and a method that has
    fewer images than another says so in the legend.
    """
    _check(shares=measured is None, deletion=deletion, insertion=insertion)
    falling = {name: mean_of(deletion[name]) for name in deletion}
    rising = {name: mean_of(insertion[name]) for name in deletion}
    height = 4.4 + 0.21 * max(_lines(falling), _lines(rising))
    figure, [left, right] = panels(11.6, height, rows=1, columns=2)
    _draw_panel(left, falling, name="Deletion", better="lower is better")
    _draw_panel(right, rising, name="Insertion", better="higher is better")
    means = [*falling.values(), *rising.values()]
    limits = _span(means) if measured else (0.0, _ceiling(means))
    for axes in (left, right):
        axes.set_ylim(limits)
    left.set_ylabel(measured or "probability of the class", color=MUTED)
    banner(figure, title)
    return rendered(figure)


def _draw_panel(axes: "Axes", means: Mapping[str, Mean], *, name: str, better: str) -> None:
    draw_means(axes, means, span=(0, 100), band=True)
    calm(axes)
    headline(axes, name, size=11.5)
    axes.set_title(better, loc="right", color=MUTED, fontsize=10, pad=14)
    axes.set_xlabel("share of pixels changed, hottest first", color=MUTED)
    lines = legend_lines(means, area=True)
    legend = axes.legend(
        handles=lines,
        title="method, area under its curve",
        ncols=-(-len(lines) // _lines(means)),
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=_beneath(axes),
        borderaxespad=0,
        borderpad=0,
        title_fontsize=9,
        frameon=False,
        fontsize=9,
        handlelength=3.2,
        alignment="left",
    )
    plain_text(legend)


def _beneath(axes: "Axes") -> "Transform":
    """The corner of the axes moved below their labels by inches, however high the layout makes them."""
    from matplotlib.transforms import ScaledTranslation

    return axes.transAxes + ScaledTranslation(0, -BENEATH, axes.figure.dpi_scale_trans)


def _lines(means: Mapping[str, Mean]) -> int:
    """How many lines the legend takes: two columns where they fit beneath the panel, else one."""
    widths = [font(LETTERS).getlength(str(line.get_label())) for line in legend_lines(means, area=True)]
    half = -(-len(widths) // 2)
    fits = max(widths[:half]) + max(widths[half:], default=0) + 2 * HANDLE <= ROOM
    return half if fits else len(widths)


def _check(*, shares: bool, **given: Mapping[str, Tensor]) -> None:
    deletion, insertion = (list(curves) for curves in given.values())
    if not deletion:
        raise ValueError("faithfulness_curves needs at least one method")
    if set(deletion) != set(insertion):
        raise ValueError(f"deletion has curves of {deletion}, insertion of {insertion}; both need the same")
    for kind, curves in given.items():
        for name, rows in curves.items():
            check_rows(f"{kind} of {name!r}", rows, shares=shares)


def _span(means: Iterable[Mean]) -> tuple[float, float]:
    """The tenths around all bands and around 0 and 1, for what is no probability."""
    known = [mean for mean in means if mean.count]
    low = min((float((mean.values - mean.margin).min()) for mean in known), default=0.0)
    high = max((float((mean.values + mean.margin).max()) for mean in known), default=1.0)
    return math.floor(min(low, 0) * 10) / 10, math.ceil(max(high, 1) * 10) / 10


def _ceiling(means: Iterable[Mean]) -> float:
    """The next tenth above all bands, at most 1."""
    highest = max((float((mean.values + mean.margin).max()) for mean in means if mean.count), default=1.0)
    return min(max(math.ceil(10 * highest) / 10, LOWEST), 1.0)
