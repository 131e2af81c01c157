"""A volume as a sheet of slices, drawn as an image would be."""

from collections.abc import Callable

import torch
from PIL import Image
from torch import Tensor

from dprotonet.figures.overlay import contact_sheet

_SLICES, _COLUMNS = 12, 4


def slice_sheet(
    draw: Callable[[Tensor, Tensor], Tensor], volume: Tensor, heatmap: Tensor, *, slices: int = _SLICES
) -> Image.Image:
    """Up to so many slices of a volume (3, D, H, W) uint8, each drawn with its own of the map (D, H, W).

    They are evenly spaced, and the one with the hottest place is always among them. `draw` makes (3, H, W)
    uint8 of an image and its map.
    """
    if volume.ndim != 4 or heatmap.shape != volume.shape[1:]:
        raise ValueError(f"a map {tuple(heatmap.shape)} cannot lie over a volume {tuple(volume.shape)}")
    hottest = int(heatmap.flatten(1).float().amax(dim=1).argmax())
    chosen = chosen_slices(len(heatmap), hottest, slices)
    drawn = torch.stack([draw(volume[:, number], heatmap[number]) for number in chosen])
    captions = [f"slice {number}" + (", the hottest" if number == hottest else "") for number in chosen]
    return contact_sheet(drawn, columns=min(_COLUMNS, len(chosen)), captions=captions)


def chosen_slices(depth: int, hottest: int, slices: int = _SLICES) -> list[int]:
    """Evenly spaced numbers below `depth`, the nearest to the hottest slice moved onto it."""
    count = min(depth, slices)
    spaced = [round(place) for place in torch.linspace(0, depth - 1, count).tolist()]
    nearest = min(range(count), key=lambda place: abs(spaced[place] - hottest))
    return sorted({*spaced[:nearest], hottest, *spaced[nearest + 1 :]})
