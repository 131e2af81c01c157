"""Which classes are taken for which: the confusion matrix as a picture.

Colour is the share of the true class, so that rare classes are as readable as common ones, on a square-root
scale, because the mistakes are what one looks for and each is a small share. Small matrices also carry their
counts. Counting is left to the metrics.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from torch import Tensor

from dprotonet.figures.chart import blank, headline, rendered
from dprotonet.figures.style import FOR, INK, MUTED, PAPER, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.image import AxesImage

COUNTED = 30  # up to so many classes the cells carry their counts
LABELLED = 40  # so many class names fit at an axis; beyond, every second is named, every third …
NAME = 26  # characters of a class name


def confusion_figure(matrix: Tensor, *, classes: Sequence[str], title: str | None = None) -> Image.Image:
    """The confusion matrix (C, C) int64, rows true, columns predicted."""
    count = len(classes)
    if tuple(matrix.shape) != (count, count) or not count:
        raise ValueError(
            f"a matrix of shape {tuple(matrix.shape)} does not fit {count} classes; it must be (C, C)"
        )
    counts = matrix.detach().cpu().numpy()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    edge = 3.0 + 0.42 * count if count <= COUNTED else 14.0
    figure, axes = blank(edge + 0.9, edge + (0.5 if title else 0.1))
    shown = axes.imshow(np.sqrt(shares), cmap=_paper_to_blue(), vmin=0, vmax=1, interpolation="nearest")
    _label(axes, classes)
    headline(axes, title)
    if count <= COUNTED:
        _write_counts(axes, counts, shares)
    _draw_key(axes, shown)
    return rendered(figure)


def _paper_to_blue() -> "Colormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("paper-to-blue", [PAPER, "#a9cfe6", FOR, "#073b5c"])


def _label(axes: "Axes", classes: Sequence[str]) -> None:
    step = -(-len(classes) // LABELLED)
    places = list(range(0, len(classes), step))
    names = [shortened(classes[place], NAME) for place in places]
    size = 9 if len(classes) <= COUNTED else 8
    if len(classes) <= 6 and max(map(len, names)) <= 10:
        axes.set_xticks(places, names, parse_math=False)
    else:
        axes.set_xticks(places, names, rotation=45, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(places, names, parse_math=False)
    axes.tick_params(labelsize=size)
    axes.set_xlabel("predicted", color=MUTED, labelpad=10)
    axes.set_ylabel("true", color=MUTED, labelpad=10)
    if len(classes) <= COUNTED:  # white seams between the cells
        seams = np.arange(len(classes) + 1) - 0.5
        axes.set_xticks(seams, minor=True)
        axes.set_yticks(seams, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="minor", length=0)
        axes.spines[:].set_visible(False)


def _write_counts(axes: "Axes", counts: np.ndarray, shares: np.ndarray) -> None:
    size = 9 if counts.max() < 1000 or len(counts) < 6 else 7  # four digits fill a small cell
    for row, column in zip(*np.nonzero(counts), strict=True):
        colour = "white" if shares[row, column] > 0.3 else INK
        axes.text(
            column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=size
        )


def _draw_key(axes: "Axes", shown: "AxesImage") -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None
    key = figure.colorbar(shown, ax=axes, shrink=0.5, aspect=24, pad=0.03, ticks=np.sqrt([0, 0.1, 0.5, 1]))
    key.ax.set_yticklabels(["0 %", "10 %", "50 %", "100 %"])
    key.ax.tick_params(length=0, labelsize=9, labelcolor=MUTED)
    key.set_label("of the true class", color=MUTED, fontsize=9)
    key.outline.set_visible(False)
