"""Where a network looked when it decided: many images, each beside itself with its heatmap over it.

As the paper shows decision regions: chest X-rays with the true boxes red and the found box yellow, fundus
images with the lesion outlined in white, birds and cars with the heatmap alone. What is to be drawn is the
caller's choice, image by image; an image without truth is drawn without it, and counted in the last line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas, extent
from dprotonet.figures.comparison_grid import LINE, GridAnswer
from dprotonet.figures.legend import FOOTER, draw_legend
from dprotonet.figures.outline import Box, Truth, marked
from dprotonet.figures.overlay import overlay
from dprotonet.figures.style import MARGIN, MUTED, SMALL, TITLE

TILE = 208  # edge of a picture
SEAM, PAIR, SPACE = 6, 34, 22  # between an image and its heatmap, two pairs side by side, two rows
WIDTH = 2 * TILE + SEAM  # of a pair
HEADER, NOTE = 52, 30  # heights of the title and of the note beneath it


@dataclass(frozen=True)
class DecisionRegion:
    """One image (3 or 1, H, W) uint8, its heatmap (H, W) in [0, 1], and what is drawn on both.

    `truth` is (H, W) bool, outlined in white, or boxes, red; an empty one counts as none. `box`, the found
    one, is yellow. `answer` stands beneath, and `caption` in the line after it.
    """

    image: Tensor
    heatmap: Tensor
    answer: GridAnswer
    caption: str = ""
    truth: Truth | None = None
    box: Box | None = None

    @property
    def known(self) -> Truth | None:
        """The truth, unless it is empty."""
        if self.truth is None:
            return None
        empty = not self.truth.any() if isinstance(self.truth, Tensor) else not self.truth
        return None if empty else self.truth

    @property
    def height(self) -> int:
        return extent(self.image, TILE)[1] + LINE * (2 if self.caption else 1)

    def draw(self, canvas: Canvas, at: tuple[int, int]) -> None:
        """The pair of pictures with its words, downwards from `at`."""
        (left, top), (width, height) = at, extent(self.image, TILE)
        hot = overlay(self.image, self.heatmap)
        canvas.tile(at, marked(self.image, side=TILE, truth=self.known), TILE)
        canvas.tile((left + width + SEAM, top), marked(hot, side=TILE, truth=self.known, box=self.box), TILE)
        beneath = top + height + 17
        self.answer.draw(canvas, (left, beneath), WIDTH)
        canvas.text((left, beneath + LINE), self.caption, size=SMALL, colour=MUTED, width=WIDTH, tail=9)


def decision_regions_sheet(
    regions: Sequence[DecisionRegion],
    *,
    title: str = "",
    note: str = "",
    columns: int = 3,
    truth_wanted: bool = True,
) -> Image.Image:
    """All of them in rows of `columns` pairs; `note`, beneath the title, says what the heatmaps are of.

    Without `truth_wanted` images that lack it are not counted.
    """
    if not regions:
        raise ValueError("decision_regions_sheet needs at least one image")
    if columns < 1:
        raise ValueError(f"columns must be at least 1, not {columns}")
    rows = [regions[start : start + columns] for start in range(0, len(regions), columns)]
    heights = [max(region.height for region in row) for row in rows]
    header = (HEADER if title else 0) + (NOTE if note else 0)
    wide = max(2, len(rows[0])) * (WIDTH + PAIR) - PAIR  # the last line needs the room of two
    tall = header + sum(heights) + SPACE * (len(rows) - 1) + FOOTER
    canvas = Canvas(wide + 2 * MARGIN, tall + 2 * MARGIN)
    canvas.text((MARGIN, MARGIN + 20), title, size=TITLE, bold=True, width=wide)
    canvas.text((MARGIN, MARGIN + header - 18), note, size=SMALL, colour=MUTED, width=wide)
    top = MARGIN + header
    for row, height in zip(rows, heights, strict=True):
        for place, region in enumerate(row):
            region.draw(canvas, (MARGIN + place * (WIDTH + PAIR), top))
        top += height + SPACE
    _draw_footer(canvas, regions, truth_wanted=truth_wanted)
    return canvas.image


def _draw_footer(canvas: Canvas, regions: Sequence[DecisionRegion], *, truth_wanted: bool) -> None:
    truths = [region.known for region in regions]
    lacking = sum(truth is None for truth in truths) if truth_wanted else 0
    draw_legend(
        canvas,
        truths=truths,
        boxes=any(region.box is not None for region in regions),
        note=f"{lacking} of {len(regions)} without truth" if lacking else "",
    )
