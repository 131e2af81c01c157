"""Validation accuracy of several networks over epochs, pushes as steps: who falls at a push, and how far."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from PIL import Image

from dprotonet.figures.chart import blank, headline, rendered
from dprotonet.figures.method_lines import plain_text, styles_of
from dprotonet.figures.style import HAIRLINE, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class AccuracyCurve(NamedTuple):
    """Accuracies in [0, 1] after each epoch, and for each push its epoch and the accuracy after it."""

    epochs: Sequence[float]
    accuracy: Sequence[float]
    pushes: Sequence[float] = ()
    after_push: Sequence[float] = ()

    def points(self) -> tuple[list[float], list[float]]:
        """The line: at a push it steps from the accuracy before to the one after."""
        after = dict(zip(self.pushes, self.after_push, strict=True))
        places: list[float] = []
        values: list[float] = []
        for epoch, accuracy in zip(self.epochs, self.accuracy, strict=True):
            places, values = [*places, epoch], [*values, accuracy]
            if epoch in after:
                places, values = [*places, epoch], [*values, after[epoch]]
        return places, values


def network_curves(curves: Mapping[str, AccuracyCurve], *, title: str | None = None) -> Image.Image:
    """One line a network, the first one featured; a ring marks the accuracy after each push."""
    if not curves:
        raise ValueError("network_curves needs at least one network")
    figure, axes = blank(8.8, 4.8)
    for name, style in styles_of(curves).items():
        places, values = (torch.tensor(column) for column in curves[name].points())
        axes.add_line(style.line(places, values, label=name))
        axes.plot(
            curves[name].pushes,
            curves[name].after_push,
            linestyle="",
            marker="o",
            markersize=4,
            color=style.colour,
        )
    _calm(axes)
    headline(axes, title or "Validation accuracy, with pushes")
    return rendered(figure)


def _calm(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.autoscale_view()
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    axes.grid(axis="y", color=HAIRLINE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("epoch (dots: after a push)", color=MUTED)
    axes.set_ylabel("accuracy", color=MUTED)
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    plain_text(legend)
