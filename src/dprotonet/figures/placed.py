"""A place of an image, large enough to be looked at, with the whole image small in a corner.

A prototype that is one place of a fine map would be lost on a picture of the whole image: here it fills the
picture, and the box on the small image says where it is.
"""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from dprotonet.figures.canvas import extent
from dprotonet.figures.outline import Box, marked

SIDE = 256  # edge of the picture
INSET = 0.36  # edge of the small image as a share of it
FRAME = 3  # pixels of paper between the two


def cropped(image: Tensor, box: Box, *, side: int = SIDE) -> Tensor:
    """What lies in the box of an image (3 or 1, H, W) uint8, its longer edge `side` pixels long."""
    height, width = image.shape[-2:]
    left, top, right, bottom = box
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"box {tuple(box)} does not lie within a picture of {width} × {height} pixels")
    part = image[:, top:bottom, left:right].expand(3, -1, -1)
    across, down = extent(part, side)
    large = interpolate(part[None].float(), size=(down, across), mode="bicubic", antialias=True)[0]
    return large.round().clamp(0, 255).to(torch.uint8)


def placed(image: Tensor, box: Box, *, at: Box | None = None, side: int = SIDE) -> Tensor:
    """The box of an image (3, H, W) uint8, large; in a corner the whole image with the box drawn on it.

    `at`, within the box, is what must not be hidden: the small image goes to the other side of it.
    """
    large = cropped(image, box, side=side)
    small = _small(image, box, round(side * INSET))
    height, width = small.shape[-2:]
    if height + FRAME >= large.shape[-2] or width + FRAME >= large.shape[-1]:
        return large  # the box is a sliver: there is no corner to spare
    right = at is None or at[0] + at[2] <= box[0] + box[2]  # its middle is left of, or in, the box's middle
    columns = slice(-width - FRAME, None) if right else slice(None, width + FRAME)
    large[:, -height - FRAME :, columns] = 255
    large[:, -height:, slice(-width, None) if right else slice(None, width)] = small
    return large


def _small(image: Tensor, box: Box, side: int) -> Tensor:
    fine = marked(image, side=side, box=box)
    across, down = extent(image, side)
    small = interpolate(fine[None].float(), size=(down, across), mode="bicubic", antialias=True)[0]
    return small.round().clamp(0, 255).to(torch.uint8)
