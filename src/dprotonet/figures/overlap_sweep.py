"""How well the hottest pixels cover the object, whichever share is taken: the paper's appendix figures.

Four panels, DICE, IOU, PPV and sensitivity, over the top 1 % to 99 % of the pixels, one mean line a method.
The line that `mark` draws is the share at which a table reads the curves.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

from dprotonet.figures.chart import banner, headline, panels, rendered
from dprotonet.figures.method_lines import (
    LineStyle,
    calm,
    check_rows,
    draw_means,
    legend_lines,
    mean_of,
    plain_text,
)
from dprotonet.figures.style import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MEASURES = ("DICE", "IOU", "PPV", "sensitivity")
SHARES = 99  # from the top 1 % to the top 99 %
MARK = LineStyle(MUTED, (), 0.9)


def overlap_sweep(
    overlaps: Mapping[str, Mapping[str, Tensor]], *, mark: float | None = None, title: str | None = None
) -> Image.Image:
    """The mean overlap of every method; each has "DICE", "IOU", "PPV" and "sensitivity", all (N, 99).

    The first method is the featured one. A row with a NaN, an image without truth, is left out. `mark` is a
    share of the pixels, between 0 and 1.
    """
    _check(overlaps, mark)
    figure, every = panels(11.8, 7.4, rows=2, columns=2)
    for axes, measure in zip(every, MEASURES, strict=True):
        _draw_panel(axes, {name: values[measure] for name, values in overlaps.items()}, mark=mark)
        headline(axes, measure[0].upper() + measure[1:], size=11.5)
    for axes in every[::2]:
        axes.set_ylabel("mean over images", color=MUTED)
    for axes in every[2:]:
        axes.set_xlabel("share of pixels taken, hottest first", color=MUTED)
    _draw_legend(figure, overlaps, mark)
    banner(figure, title)
    return rendered(figure)


def _draw_panel(axes: "Axes", rows: Mapping[str, Tensor], *, mark: float | None) -> None:
    draw_means(axes, {name: mean_of(values) for name, values in rows.items()}, span=(1, SHARES))
    calm(axes)
    axes.set_ylim(0, 1)
    if mark is not None:
        axes.add_line(_mark(100 * mark))


def _draw_legend(figure: "Figure", overlaps: Mapping[str, Mapping[str, Tensor]], mark: float | None) -> None:
    """One legend for all panels; which images have a truth is the same for every measure."""
    lines = legend_lines({name: mean_of(values[MEASURES[0]]) for name, values in overlaps.items()})
    if mark is not None:
        lines.append(_mark(100 * mark, label=f"top {100 * mark:g} %, as in the table"))
    legend = figure.legend(
        handles=lines, loc="outside right upper", frameon=False, fontsize=9, handlelength=3.2
    )
    plain_text(legend)


def _mark(percent: float, label: str = "") -> "Line2D":
    return MARK.line(torch.tensor([percent, percent]), torch.tensor([0.0, 1.0]), label=label)


def _check(overlaps: Mapping[str, Mapping[str, Tensor]], mark: float | None) -> None:
    if not overlaps:
        raise ValueError("overlap_sweep needs at least one method")
    if mark is not None and not 0 < mark < 1:
        raise ValueError(f"mark is {mark}; it is a share of the pixels, between 0 and 1")
    for name, measures in overlaps.items():
        if missing := [measure for measure in MEASURES if measure not in measures]:
            raise ValueError(f"{name!r} has measures {list(measures)}; {', '.join(missing)} are missing")
        for measure in MEASURES:
            check_rows(f"{measure} of {name!r}", measures[measure], columns=SHARES)
