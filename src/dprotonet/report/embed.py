"""Pictures that travel inside the page: WebP as data URIs, no larger than they are shown."""

import base64
import io

import torch
from PIL import Image
from torch import Tensor

from dprotonet.figures import picture
from dprotonet.figures.overlay import heat
from dprotonet.report.content import Picture

CARD, CASE, ROW, THUMB, WIDE = 224, 320, 224, 96, 1400  # longest edge in pixels, by where it is shown
QUALITY = 78
KEY = (240, 12)  # width and height of the colour key


def embedded(image: Tensor, alt: str, *, longest: int) -> Picture:
    """An image (3, H, W) uint8."""
    return embedded_picture(picture(image), alt, longest=longest)


def embedded_picture(image: Image.Image, alt: str, *, longest: int) -> Picture:
    """A PIL image; it is shrunk where it is larger, never enlarged."""
    shown = image.convert("RGB")
    shown.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    shown.save(file, format="WEBP", quality=QUALITY, method=4)
    text = base64.b64encode(file.getvalue()).decode("ascii")
    return Picture(f"data:image/webp;base64,{text}", alt, *shown.size)


def colour_key() -> Picture:
    """The colours of heatmaps from cold to hot."""
    colours = (255 * heat(torch.linspace(0, 1, KEY[0]).expand(KEY[1], -1))).round().to(torch.uint8)
    alt = "Colour key: blue was ignored, green and yellow counted a little, red was decisive."
    return embedded(colours, alt, longest=KEY[0])
