"""A heatmap laid over its image, and many images on one sheet.

Heatmap images are the weighted sum of image and coloured heatmap, Eq. (18). Blue is cold and red is hot, as
in the paper's figures.

Deviation: the paper blends with alpha 0.5 and beta 0.3, which darkens the picture; we take one half each.
Unstated: the colour map; ours goes from blue to red with a single peak of lightness instead of jet's bands.
"""

from collections.abc import Sequence

import torch
from PIL import Image, ImageColor
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.style import GAP, HEAT, MARGIN, MUTED, SMALL

TILE = 192  # edge of a picture on a contact sheet
LINE = 26  # height of its caption


def overlay(
    image: Tensor, heatmap: Tensor, *, image_weight: float = 0.5, heatmap_weight: float = 0.5
) -> Tensor:
    """The image (3, H, W) uint8 with the heatmap (H, W) in [0, 1] over it, (3, H, W) uint8."""
    if image.ndim != 3 or heatmap.shape != image.shape[1:]:
        raise ValueError(f"a heatmap {tuple(heatmap.shape)} cannot lie over an image {tuple(image.shape)}")
    mixed = image_weight * image.expand(3, -1, -1).float() + heatmap_weight * 255 * heat(heatmap).to(
        image.device
    )
    return mixed.round().clamp(0, 255).to(torch.uint8)


def heat(heatmap: Tensor) -> Tensor:
    """The colours (3, H, W) in [0, 1] of a heatmap (H, W) in [0, 1], from blue by way of yellow to red."""
    if not bool(((heatmap >= -1e-4) & (heatmap <= 1 + 1e-4)).all()):
        raise ValueError("a heatmap must lie in [0, 1] and hold no NaN; bring it to the unit range first")
    anchors = torch.tensor([ImageColor.getrgb(colour)[:3] for colour in HEAT], device=heatmap.device) / 255
    place = heatmap.float().clamp(0, 1) * (len(HEAT) - 1)
    below = place.floor().long().clamp(max=len(HEAT) - 2)
    colours = torch.lerp(anchors[below], anchors[below + 1], (place - below).unsqueeze(-1))
    return colours.permute(2, 0, 1)


def contact_sheet(images: Tensor, *, columns: int, captions: Sequence[str] | None = None) -> Image.Image:
    """The images (N, 3, H, W) uint8 in rows of `columns`, each with its caption beneath."""
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    if captions is not None and len(captions) != len(images):
        raise ValueError(f"{len(captions)} captions for {len(images)} images")
    height = TILE + (GAP if captions is None else GAP + LINE)
    rows = -(-len(images) // columns)
    canvas = Canvas(2 * MARGIN + columns * (TILE + GAP) - GAP, 2 * MARGIN + max(rows * height - GAP, 0))
    for index, image in enumerate(images):
        row, column = divmod(index, columns)
        left, top = MARGIN + column * (TILE + GAP), MARGIN + row * height
        canvas.picture((left, top), image, TILE)
        if captions is not None:
            canvas.text((left, top + TILE + 19), captions[index], size=SMALL, colour=MUTED, width=TILE)
    return canvas.image
