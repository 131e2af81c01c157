"""How training went: accuracy over epochs, with the pushes marked.

A push replaces prototypes by region vectors of training images; where the accuracies before and after are
given, the picture shows at a glance what that cost.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image

from dprotonet.figures.chart import blank, headline, rendered
from dprotonet.figures.style import AGAINST, FOR, HAIRLINE, INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def training_curve(
    *,
    epochs: Sequence[float],
    train: Sequence[float],
    val: Sequence[float],
    pushes: Sequence[float] = (),
    before_push: Sequence[float] | None = None,
    after_push: Sequence[float] | None = None,
    title: str | None = None,
) -> Image.Image:
    """Accuracies in [0, 1] over epochs; `before_push` and `after_push`: those of validation, one a push."""
    _check("epochs", len(epochs), train=train, val=val)
    _check("pushes", len(pushes), before_push=before_push, after_push=after_push)
    figure, axes = blank(8.4, 4.6)
    _draw_line(axes, epochs, train, colour=FOR, label="training")
    _draw_line(axes, epochs, val, colour=AGAINST, label="validation")
    _mark_pushes(axes, pushes)
    if before_push is not None and after_push is not None:
        _mark_effects(axes, pushes, before=before_push, after=after_push)
    _calm(axes)
    headline(axes, title)
    return rendered(figure)


def _check(per: str, count: int, **given: Sequence[float] | None) -> None:
    for name, values in given.items():
        if values is not None and len(values) != count:
            raise ValueError(f"{name} has {len(values)} values for {count} {per}")


def _draw_line(
    axes: "Axes", epochs: Sequence[float], accuracy: Sequence[float], *, colour: str, label: str
) -> None:
    """A line; with dots while epochs are few, for a single epoch would otherwise be invisible."""
    marker = "o" if len(epochs) <= 30 else ""
    axes.plot(epochs, accuracy, color=colour, linewidth=2, label=label, marker=marker, markersize=3.5)


def _mark_pushes(axes: "Axes", pushes: Sequence[float]) -> None:
    for place, epoch in enumerate(pushes):
        axes.axvline(
            epoch, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="" if place else "push", zorder=1
        )


def _mark_effects(
    axes: "Axes", pushes: Sequence[float], *, before: Sequence[float], after: Sequence[float]
) -> None:
    """A ring before and a smaller dot after each push, so that both are seen where they coincide."""
    axes.vlines(pushes, before, after, color=INK, linewidth=2, zorder=4)
    dots = {"marker": "o", "linestyle": "", "markeredgecolor": INK, "zorder": 5}
    axes.plot(pushes, before, markerfacecolor=PAPER, label="before push", markersize=8, **dots)  # type: ignore[arg-type]
    axes.plot(pushes, after, markerfacecolor=INK, label="after push", markersize=4.5, **dots)  # type: ignore[arg-type]


def _widen(axes: "Axes") -> None:
    """At least one epoch and a fifth of the accuracies in view, so that few data do not look dramatic."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    missing = max(0.2 - (top - bottom), 0) / 2
    axes.set_xlim(min(left, (left + right) / 2 - 1), max(right, (left + right) / 2 + 1))
    axes.set_ylim(max(bottom - missing, -0.015), min(top + missing, 1.015))  # no tick beyond 0 and 100 %


def _calm(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))
    axes.yaxis.set_major_locator(
        MaxNLocator(nbins=9, steps=[1, 2, 5, 10])
    )  # whole per cents: labels show no more
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    _widen(axes)
    axes.grid(axis="y", color=HAIRLINE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("epoch", color=MUTED)
    axes.set_ylabel("accuracy", color=MUTED)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, labelcolor=INK, fontsize=9)
