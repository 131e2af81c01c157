"""Lines on an image that can be read whatever lies beneath: a mask outlined in white, boxes in colours.

As in the paper: the true boxes are red, the box that was found is yellow. Every line has a dark one along its
outer side, so that it stands out from light ground and from a heatmap's own red and yellow.
"""

import math
from collections.abc import Sequence

import torch
from PIL import ImageColor
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, interpolate, max_pool2d, pad

from dprotonet.figures.canvas import extent
from dprotonet.figures.style import FOUND_BOX, INK, PAPER, TRUE_BOX

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; right and bottom are the first ones outside."""
Truth = Tensor | Sequence[Box]
"""Of one image: a mask (H, W) bool, or any number of boxes."""

FINE = 2  # how many times larger than drawn a picture gets its lines, which smooths them


def outlined(picture: Tensor, truth: Tensor, *, width: int = 1) -> Tensor:
    """The picture (3 or 1, H, W) uint8 with the edge of the truth (H, W) bool drawn on it, (3, H, W) uint8.

    A light line of so many pixels runs just inside the truth and a dark one just outside; a truth that
    reaches the border of the picture is closed along it. An empty truth leaves the picture as it is.
    """
    _check(picture, truth)
    truth = truth.to(picture.device)
    inside = truth & _grown(~truth, width, beyond=True)
    outside = _grown(truth, width, beyond=False) & ~truth
    return _painted(_painted(picture.expand(3, -1, -1), inside, PAPER), outside, INK)


def boxed(picture: Tensor, box: Box, *, colour: str = FOUND_BOX, width: int = 1) -> Tensor:
    """The picture (3 or 1, H, W) uint8 with the edge of the box drawn on it, (3, H, W) uint8.

    The coloured line is twice as wide as the dark one; it runs inside the box, the dark one outside.
    """
    area = _filled(picture, box)
    edge = area & _grown(~area, 2 * width, beyond=True)
    outside = _grown(area, width, beyond=False) & ~area
    return _painted(_painted(picture.expand(3, -1, -1), edge, colour), outside, INK)


def marked(
    picture: Tensor,
    *,
    side: int,
    truth: Truth | None = None,
    box: Box | None = None,
) -> Tensor:
    """The picture with lines equally thin whatever its size, to be drawn with a longer edge of `side`.

    A mask is outlined in white, true boxes are red; `box`, the one that was found, is yellow and on top.
    The picture comes out twice as fine as `side`. A truth of few pixels is never lost on the way.
    """
    if isinstance(truth, Tensor):
        _check(picture, truth)
    width, height = extent(picture, FINE * side)
    fine = interpolate(picture[None].float(), size=(height, width), mode="bicubic", antialias=True)[0]
    fine = fine.round().clamp(0, 255).to(torch.uint8)
    if isinstance(truth, Tensor):
        fine = outlined(fine, adaptive_max_pool2d(truth[None].float(), (height, width))[0] > 0, width=FINE)
    else:
        for true in truth or ():
            fine = boxed(fine, _scaled(true, picture, fine), colour=TRUE_BOX, width=FINE)
    if box is not None:
        fine = boxed(fine, _scaled(box, picture, fine), width=FINE)
    return fine.expand(3, -1, -1)


def _filled(picture: Tensor, box: Box) -> Tensor:
    """The pixels of the box, bool (H, W)."""
    height, width = picture.shape[-2:]
    left, top, right, bottom = box
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"box {tuple(box)} does not lie within a picture of {width} × {height} pixels")
    area = torch.zeros(height, width, dtype=torch.bool, device=picture.device)
    area[top:bottom, left:right] = True
    _check(picture, area)
    return area


def _scaled(box: Box, coarse: Tensor, fine: Tensor) -> Box:
    """The box on another size of its picture, rounded outwards so that it is never empty."""
    _filled(coarse, box)
    down, across = (new / old for new, old in zip(fine.shape[-2:], coarse.shape[-2:], strict=True))
    left, top, right, bottom = box
    right, bottom = math.ceil(right * across), math.ceil(bottom * down)
    return int(left * across), int(top * down), min(right, fine.shape[-1]), min(bottom, fine.shape[-2])


def _grown(mask: Tensor, width: int, *, beyond: bool) -> Tensor:
    """The mask and all within `width` pixels of it; `beyond` says what lies outside the picture."""
    framed = pad(mask.float()[None], [width] * 4, value=float(beyond))
    return max_pool2d(framed, 2 * width + 1, stride=1)[0] > 0


def _painted(picture: Tensor, where: Tensor, colour: str) -> Tensor:
    paint = torch.tensor(ImageColor.getrgb(colour)[:3], dtype=torch.uint8, device=picture.device)
    return torch.where(where, paint.view(3, 1, 1), picture)


def _check(picture: Tensor, truth: Tensor) -> None:
    shapes = f"{tuple(truth.shape)} {truth.dtype} over {tuple(picture.shape)} {picture.dtype}"
    if picture.dtype != torch.uint8 or picture.ndim != 3 or picture.shape[0] not in (1, 3):
        raise ValueError(f"{shapes}: a picture must be uint8 of shape (3, H, W) or (1, H, W)")
    if truth.dtype != torch.bool or truth.shape != picture.shape[1:]:
        raise ValueError(f"{shapes}: a truth must be bool (H, W) and as large as its picture")
