"""Where a network looks: many images, each beside its heatmap, or one image as several methods explain it.

`saliency_sheet` draws the images, `method_sheet` the methods. Making the heatmaps is left to interpretation,
and measuring how true they are to the metrics; captions can carry the numbers.
"""

from collections.abc import Mapping, Sequence

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas, extent
from dprotonet.figures.overlay import draw_key, masked_image, overlay
from dprotonet.figures.style import GAP, MARGIN, MUTED, SMALL, TITLE
from dprotonet.figures.words import Words

SPACE = 24  # between two rows
KEY, FOOTER = 300, 46  # width of the colour key, and height of the line where it stands

TILE = 248  # edge of a picture on the sheet of images
NAME = 270  # width of its column of titles and captions
HEADS = 30  # height of the heads of its columns
STAGES = ("the image", "where the network looks", "what the network needs to see")

METHOD = 208  # edge of a picture on the sheet of methods
FEWEST, ABREAST = 3, 7  # columns: room for the title, and how many pictures stand side by side
HEADER = 56


def saliency_sheet(
    images: Sequence[Tensor] | Tensor,
    heatmaps: Sequence[Tensor] | Tensor,
    *,
    titles: Sequence[str],
    captions: Sequence[str] | None = None,
    notices: Sequence[str] | None = None,
) -> Image.Image:
    """One row an image: as it is, with its heatmap over it, and multiplied with its heatmap, Eq. (19).

    Images are (3, H, W) or (1, H, W) uint8, heatmaps (H, W) in [0, 1]; sizes may differ from row to row.
    A notice, where it is not empty, stands in amber above the title.
    """
    captions, notices = ([""] * len(images) if given is None else given for given in (captions, notices))
    _check(len(images), heatmaps=heatmaps, titles=titles, captions=captions, notices=notices)
    rows = zip(titles, captions, notices, strict=True)
    words = [Words(title, caption, NAME - 40, notice) for title, caption, notice in rows]
    heights = [max(extent(image, TILE)[1], text.height) for image, text in zip(images, words, strict=True)]
    tall = HEADS + sum(heights) + SPACE * (len(heights) - 1) + FOOTER
    canvas = Canvas(_column(len(STAGES)) - GAP + MARGIN, tall + 2 * MARGIN)
    for place, stage in enumerate(STAGES):
        canvas.text((_column(place), MARGIN + 14), stage, size=SMALL, colour=MUTED, width=TILE)
    top = MARGIN + HEADS
    for image, heatmap, text, height in zip(images, heatmaps, words, heights, strict=True):
        text.draw(canvas, (MARGIN, top))
        for place, shown in enumerate((image, overlay(image, heatmap), masked_image(image, heatmap))):
            canvas.tile((_column(place), top), shown, TILE)
        top += height + SPACE
    _draw_footer(canvas)
    return canvas.image


def method_sheet(
    image: Tensor,
    heatmaps: Mapping[str, Tensor],
    *,
    title: str,
    captions: Mapping[str, str] | None = None,
    notice: str = "",
) -> Image.Image:
    """One image (3, H, W) or (1, H, W) uint8, and beside it with the heatmap (H, W) of every method over it.

    Methods are named by the keys of `heatmaps` and drawn in their order; `captions` has all or some of them.
    A `notice` stands in amber above its title.
    """
    captions = captions or {}
    if unknown := [name for name in captions if name not in heatmaps]:
        raise ValueError(f"captions for {unknown}, but the heatmaps are of {list(heatmaps)}")
    pictures = [image, *(overlay(image, heatmap) for heatmap in heatmaps.values())]
    words = [Words(name, captions.get(name, ""), METHOD) for name in heatmaps]
    return _grid(pictures, [Words("the image", "", METHOD, notice), *words], title=title)


def _grid(pictures: Sequence[Tensor], words: Sequence[Words], *, title: str) -> Image.Image:
    """Pictures of one size with words beneath, in as few rows as fit and as evenly filled as can be."""
    rows = -(-len(pictures) // ABREAST)
    columns = max(-(-len(pictures) // rows), FEWEST)
    beneath = extent(pictures[0], METHOD)[1] + 10
    height = beneath + max(text.height for text in words) + SPACE
    width = columns * (METHOD + GAP) - GAP
    canvas = Canvas(width + 2 * MARGIN, HEADER + rows * height - SPACE + FOOTER + 2 * MARGIN)
    canvas.text((MARGIN, MARGIN + 22), title, size=TITLE, bold=True, width=width)
    for index, (picture, text) in enumerate(zip(pictures, words, strict=True)):
        row, column = divmod(index, columns)
        left, top = MARGIN + column * (METHOD + GAP), MARGIN + HEADER + row * height
        canvas.tile((left, top), picture, METHOD)
        text.draw(canvas, (left, top + beneath))
    _draw_footer(canvas)
    return canvas.image


def _check(count: int, **given: Sequence[object] | Tensor) -> None:
    if not count:
        raise ValueError("saliency_sheet needs at least one image")
    for name, values in given.items():
        if len(values) != count:
            raise ValueError(f"{len(values)} {name} for {count} images; each image needs one")


def _column(place: int) -> int:
    return MARGIN + NAME + place * (TILE + GAP)


def _draw_footer(canvas: Canvas) -> None:
    draw_key(canvas, (MARGIN, canvas.image.height - MARGIN - 9), KEY)
