"""How alike heatmaps remain while a network forgets: one line a method, from the output to the input."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

from dprotonet.figures.chart import blank, headline, rendered
from dprotonet.figures.method_lines import labelled, styles_of
from dprotonet.figures.style import MUTED, fitted, font

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = 190  # pixels of a layer's name


def forgetting_curves(
    correlations: Mapping[str, Tensor], *, layers: Sequence[str], title: str | None = None
) -> Image.Image:
    """Mean rank correlation (N, S) of each method's maps with those of the intact network, stage by stage.

    Every line starts at 1, the intact network with itself. A map without an order (NaN) is left out.
    """
    _check(correlations, layers)
    figure, axes = blank(8.8, 4.8)
    places = torch.arange(len(layers) + 1)
    means = {name: values.double().cpu().nanmean(dim=0) for name, values in correlations.items()}
    for name, style in styles_of(correlations).items():
        axes.add_line(style.line(places, torch.cat([torch.ones(1).double(), means[name]]), label=name))
    axes.axhline(0, color=MUTED, linewidth=0.8)
    _scale(axes, layers, lowest=float(torch.cat([*means.values()]).nan_to_num(1.0).min()))
    up = "rank correlation with the intact network's map"
    labelled(axes, across="random from the output down to this layer", up=up)
    headline(axes, title or "What remains of the heatmap while the network forgets")
    return rendered(figure)


def _scale(axes: "Axes", layers: Sequence[str], lowest: float) -> None:
    names = ["intact", *(fitted(layer, NAME, font(12), tail=8) for layer in layers)]
    axes.set_xlim(0, len(layers))
    axes.set_ylim(min(-0.1, lowest - 0.05), 1.05)
    axes.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize=8)


def _check(correlations: Mapping[str, Tensor], layers: Sequence[str]) -> None:
    if not correlations or not layers:
        raise ValueError("forgetting_curves needs at least one method and one layer")
    for name, values in correlations.items():
        if values.ndim != 2 or values.shape[1] != len(layers):
            raise ValueError(f"{name!r} has shape {tuple(values.shape)}; it must be (N, {len(layers)})")
