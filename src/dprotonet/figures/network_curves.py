"""Validation accuracy of several networks over epochs, with what every push did: who falls, and who recovers.

A push and the training of the last layer that follows take no epoch, so they are drawn in the room between
two: down to an open dot, accuracy right after the push, and on to a full one, after the last layer learned.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from PIL import Image

from dprotonet.figures.chart import blank, headline, rendered
from dprotonet.figures.method_lines import LineStyle, cut, labelled, styles_of
from dprotonet.figures.style import HAIRLINE, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUSHED, JUDGED = 0.3, 0.65  # of an epoch: where the accuracies after a push and after the last layer stand
NOTE = "shaded: a push    ○ right after it    ● after the last layer learned"
ROOM = 0.25  # least height of the picture, as accuracy


class AccuracyCurve(NamedTuple):
    """Accuracies in [0, 1]: after each epoch, and for each push after it and after the last-layer stage."""

    epochs: Sequence[float]
    accuracy: Sequence[float]
    pushes: Sequence[float] = ()
    after_push: Sequence[float] = ()
    after_last: Sequence[float] = ()  # as many as pushes, or none

    def points(self) -> tuple[list[float], list[float]]:
        """The line through all accuracies in the order in which they came about."""
        later = {PUSHED: self.after_push, JUDGED: self.after_last}
        found = [*zip(self.epochs, self.accuracy, strict=True)]
        for shift, values in later.items():
            if values:
                found += [(epoch + shift, value) for epoch, value in zip(self.pushes, values, strict=True)]
        places, values = zip(*sorted(found, key=lambda point: point[0]), strict=True)
        return list(places), list(values)

    @property
    def final(self) -> float:
        """The last accuracy of all."""
        return self.points()[1][-1]


def network_curves(curves: Mapping[str, AccuracyCurve], *, title: str | None = None) -> Image.Image:
    """One line a network, the first one featured; the legend has the best at the end first."""
    if not curves:
        raise ValueError("network_curves needs at least one network")
    if not all(curve.epochs for curve in curves.values()):
        raise ValueError("network_curves needs at least one epoch of every network")
    figure, axes = blank(9.6, 5.0)
    _shade_pushes(axes, sorted({epoch for curve in curves.values() for epoch in curve.pushes}))
    styles = styles_of(curves)
    for name in sorted(curves, key=lambda name: -curves[name].final):
        _draw(axes, name, curves[name], styles[name])
    _scale(axes, curves)
    across = f"epoch\n{NOTE}" if any(curve.pushes for curve in curves.values()) else "epoch"
    labelled(axes, across=across, up="accuracy", legend="network, accuracy at the end")
    headline(axes, title or "Validation accuracy, with pushes")
    return rendered(figure)


def _draw(axes: "Axes", name: str, curve: AccuracyCurve, style: LineStyle) -> None:
    places, values = (torch.tensor(column) for column in curve.points())
    axes.add_line(style.line(places, values, label=f"{cut(name)}  {100 * curve.final:.1f} %"))
    for shift, found, fill in ((PUSHED, curve.after_push, PAPER), (JUDGED, curve.after_last, style.colour)):
        axes.plot(
            [epoch + shift for epoch in curve.pushes[: len(found)]],
            found,
            linestyle="",
            marker="o",
            markersize=4.5,
            markeredgecolor=style.colour,
            markerfacecolor=fill,
            markeredgewidth=1.3,
            zorder=6,
        )
    if len(curve.epochs) == 1:  # else a single epoch would be invisible
        axes.plot(curve.epochs, curve.accuracy, color=style.colour, marker="o", markersize=4)


def _shade_pushes(axes: "Axes", pushes: Sequence[float]) -> None:
    """A band where a push and its last-layer stage are drawn."""
    for epoch in pushes:
        axes.axvspan(epoch, epoch + PUSHED + JUDGED, color=HAIRLINE, alpha=0.6, linewidth=0, zorder=0)


def _scale(axes: "Axes", curves: Mapping[str, AccuracyCurve]) -> None:
    """The epochs from the first on; per cent, never beyond 0 and 100, and no small change looks dramatic."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    places, values = zip(*(curve.points() for curve in curves.values()), strict=True)
    first, last = min(map(min, places)), max(map(max, places))
    axes.set_xlim(first - 0.02 * (last - first) - 0.2, last + 0.02 * (last - first) + 0.3)
    low, high = min(map(min, values)), max(map(max, values))
    missing = max(ROOM - (high - low), 0.04) / 2
    axes.set_ylim(max(low - missing, -0.015), min(high + missing, 1.015))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12, steps=[1, 2, 5, 10]))
