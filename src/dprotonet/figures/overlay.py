"""A heatmap laid over its image, or multiplied with it, and many images on one sheet.

`heatmap_blend`, `masked_image` and `binary_image` are the paper's pictures, Eq. (18), Eq. (19) and line 21 of
Algorithm 1; `overlay` is the blend of Eq. (18) with weights that keep the picture bright, and what our sheets
show. Blue is cold and red is hot, as in the paper's figures.

Deviation: the paper blends with alpha 0.5 and beta 0.3, which darkens the picture; we take one half each.
Unstated: the colour map; ours goes from blue to red with a single peak of lightness instead of jet's bands.
"""

from collections.abc import Sequence

import torch
from PIL import Image, ImageColor
from torch import Tensor

from dprotonet.figures.canvas import Canvas, picture, rounding
from dprotonet.figures.style import AGAINST, FOR, GAP, HEAT, MARGIN, MUTED, SMALL

TILE = 192  # edge of a picture on a contact sheet
LINE = 26  # height of its caption
_STRONGEST = 0.85  # of a two-sided colour over the image
KEY = 14  # height of the colour key
COLD, HOT = "ignored", "decisive"  # what the ends of the colour key mean
TAIL = 9  # letters kept at the end of a caption: fine classes differ there, as Coupe_2012 and Sedan_2012 do


def overlay(
    image: Tensor, heatmap: Tensor, *, image_weight: float = 0.5, heatmap_weight: float = 0.5
) -> Tensor:
    """The image (3, H, W) uint8 with the heatmap (H, W) in [0, 1] over it, (3, H, W) uint8."""
    _check(image, heatmap)
    colours = 255 * heat(heatmap).to(image.device)
    return _as_bytes(image_weight * image.expand(3, -1, -1).float() + heatmap_weight * colours)


def two_sided(image: Tensor, heatmap: Tensor, side: Tensor) -> Tensor:
    """The image (3, H, W) uint8 in grey, coloured where it is hot: for, and where `side` is below 0 against.

    heatmap (H, W) in [0, 1] and side (H, W); the result is (3, H, W) uint8.
    """
    _check(image, heatmap)
    grey = image.expand(3, -1, -1).float().mean(dim=0, keepdim=True)
    speaks, against = (_paint(colour).to(image.device) for colour in (FOR, AGAINST))
    colours = torch.where(side.to(image.device) >= 0, speaks, against)
    weight = _STRONGEST * heatmap.to(image.device).float().clamp(0, 1).sqrt()
    return _as_bytes(torch.lerp(grey, colours, weight))


def _paint(colour: str) -> Tensor:
    return torch.tensor(ImageColor.getrgb(colour)[:3], dtype=torch.float32).view(3, 1, 1)


def heatmap_blend(image: Tensor, heatmap: Tensor, *, alpha: float = 0.5, beta: float = 0.3) -> Tensor:
    """The paper's heatmap image, Eq. (18): `alpha` times the image plus `beta` times the coloured heatmap.

    The image (3, H, W) or (1, H, W) is uint8, the heatmap (H, W) lies in [0, 1], the result is (3, H, W)
    uint8. The heatmap is coloured by `heat`: the paper draws cold blue and hot red and names no colour map,
    and ours has no bands that look like edges. Since `alpha` + `beta` is less than 1, the result is darker
    than the image, as the paper's is; where fidelity does not matter, `overlay` is easier to look at.
    """
    return overlay(image, heatmap, image_weight=alpha, heatmap_weight=beta)


def masked_image(image: Tensor, heatmap: Tensor) -> Tensor:
    """The paper's binary-mask image by Eq. (19): the image times its heatmap, black where that is cold.

    The image (3, H, W) or (1, H, W) is uint8, the heatmap (H, W) lies in [0, 1], the result is (3, H, W)
    uint8. A lukewarm place is dim; `binary_image` shows it in full.

    Unstated: which binary-mask image is meant: A·x in Eq. (19) and M^b·X0 in line 21 of Algorithm 1 differ,
    since A is a normalised heatmap and M^b is 0 or 1. We give both, this one and `binary_image`.
    """
    _check(image, heatmap)
    return _as_bytes(image.expand(3, -1, -1) * heatmap.to(image.device, torch.float32))


def binary_image(image: Tensor, binary_mask: Tensor) -> Tensor:
    """The paper's binary-mask image by Algorithm 1, line 21: M^b·X0, the image where it is kept, else black.

    The image (3, H, W) or (1, H, W) is uint8, the mask (H, W) is bool, the result is (3, H, W) uint8.
    """
    if binary_mask.dtype != torch.bool:
        raise ValueError(f"a binary mask must be bool, not {binary_mask.dtype}")
    return masked_image(image, binary_mask.float())


def heat(heatmap: Tensor) -> Tensor:
    """The colours (3, H, W) in [0, 1] of a heatmap (H, W) in [0, 1], from blue by way of yellow to red."""
    _check_range(heatmap)
    anchors = torch.tensor([ImageColor.getrgb(colour)[:3] for colour in HEAT], device=heatmap.device) / 255
    place = heatmap.float().clamp(0, 1) * (len(HEAT) - 1)
    below = place.floor().long().clamp(max=len(HEAT) - 2)
    colours = torch.lerp(anchors[below], anchors[below + 1], (place - below).unsqueeze(-1))
    return colours.permute(2, 0, 1)


def draw_key(canvas: Canvas, at: tuple[int, int], width: int) -> None:
    """What the colours mean, on a line of that width around the height of `at`: from ignored to decisive."""
    left, middle = at
    canvas.text((left, middle), COLD, size=SMALL, colour=MUTED, anchor="lm")
    canvas.text((left + width, middle), HOT, size=SMALL, colour=MUTED, anchor="rm")
    start, end = left + 70, left + width - 76
    colours = _as_bytes(255 * heat(torch.linspace(0, 1, end - start).expand(KEY, -1)))
    canvas.image.paste(picture(colours), (start, middle - KEY // 2), rounding(end - start, KEY))


def draw_sides(canvas: Canvas, at: tuple[int, int], names: tuple[str, str], width: int) -> None:
    """What the two colours of `two_sided` mean, on a line of that width around the height of `at`."""
    left, middle = at
    for place, (name, colour) in enumerate(zip(names, (FOR, AGAINST), strict=True)):
        start = left + place * width // 2
        canvas.bar((start, middle - KEY // 2), (start + KEY, middle + KEY // 2), colour)
        room = width // 2 - KEY - 16
        canvas.text(
            (start + KEY + 8, middle), f"for {name}", size=SMALL, colour=MUTED, anchor="lm", width=room
        )


def contact_sheet(images: Tensor, *, columns: int, captions: Sequence[str] | None = None) -> Image.Image:
    """The images (N, 3, H, W) uint8 in rows of `columns`, each with its caption, of any lines, beneath."""
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    if captions is not None and len(captions) != len(images):
        raise ValueError(f"{len(captions)} captions for {len(images)} images")
    lines = [caption.split("\n") for caption in captions or [""] * len(images)]
    deepest = 0 if captions is None else max(map(len, lines), default=1)
    height = TILE + GAP + LINE * deepest
    rows = -(-len(images) // columns)
    canvas = Canvas(2 * MARGIN + columns * (TILE + GAP) - GAP, 2 * MARGIN + max(rows * height - GAP, 0))
    for index, image in enumerate(images):
        row, column = divmod(index, columns)
        left, top = MARGIN + column * (TILE + GAP), MARGIN + row * height
        canvas.picture((left, top), image, TILE)
        for number, line in enumerate(lines[index]):
            at = (left, top + TILE + 19 + number * LINE)
            canvas.text(at, line, size=SMALL, colour=MUTED, width=TILE, tail=TAIL)
    return canvas.image


def _check(image: Tensor, heatmap: Tensor) -> None:
    if image.ndim != 3 or heatmap.shape != image.shape[1:]:
        raise ValueError(f"a heatmap {tuple(heatmap.shape)} cannot lie over an image {tuple(image.shape)}")
    if image.dtype != torch.uint8:
        raise ValueError(f"an image must be uint8 in [0, 255], not {image.dtype}")
    _check_range(heatmap)


def _check_range(heatmap: Tensor) -> None:
    if not bool(((heatmap >= -1e-4) & (heatmap <= 1 + 1e-4)).all()):
        raise ValueError("a heatmap must lie in [0, 1] and hold no NaN; bring it to the unit range first")


def _as_bytes(colours: Tensor) -> Tensor:
    return colours.round().clamp(0, 255).to(torch.uint8)
