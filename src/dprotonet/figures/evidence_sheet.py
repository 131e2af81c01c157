"""Why the network decided: the input, the prototypes it looks like, and how their points add up to the logit.

The bars form a staircase: each begins where the one above ended and runs to the right for points gained, to
the left for points lost; the last spans from zero to the sum. The decision is a sum and nothing but a sum,
and the sheet is laid out so that a reader can check it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.decision import LEFT, TOP, Decision
from dprotonet.figures.ledger import FACTORS, Ledger
from dprotonet.figures.notice import Notice
from dprotonet.figures.style import BODY, MARGIN, MUTED, PAPER, SMALL, TITLE

LIKE = 44  # room for the sign between two pictures
THUMB, ROW = 92, 112  # edge of a prototype's picture, and height of its row
LEDGER = Ledger(left=LEFT, factors=LEFT + 588, top=TOP, row=ROW, numbers=ROW // 2)


@dataclass(frozen=True)
class EvidenceSheetRow:
    """One prototype's part in a logit: `contribution` is `similarity` times `weight`."""

    source: Tensor  # (3, H, W) uint8
    class_name: str
    prototype: int
    similarity: float
    weight: float
    contribution: float
    place: Tensor | None = None  # (3, H, W) uint8, the place of the input that looks like it, if that is one
    part: str = ""  # what people call the part, if it has a name
    ahead: str = ""  # what the order of the rows goes by, where that is not the points
    mark: str = ""  # how reliable the row is
    warning: str = ""  # what is wrong with the pair of pictures, if anything is


def evidence_sheet(
    image: Tensor,
    *,
    title: str,
    probabilities: Sequence[tuple[str, float]],
    rows: Sequence[EvidenceSheetRow],
    rest: float,
    logit: float,
    explained: str | None = None,
    notice: str = "",
) -> Image.Image:
    """The sheet for one image (3, H, W) uint8 and the logit of one class.

    `rows` are drawn in the order given, `rest` is what all other prototypes contribute together. The logit is
    that of the class `explained`, by default the most probable one. Numbers that do not add up are refused.
    A `notice` stands in amber above the predicted class.
    """
    decision = Decision(title, probabilities, rows, rest, logit, explained, notice)
    bottom = max(decision.bottom, LEDGER.bottom(len(rows)))
    canvas = Canvas(LEDGER.right + MARGIN, bottom + MARGIN)
    decision.draw(canvas, image)
    LEDGER.draw(canvas, decision)
    if rows:
        placed = any(row.place is not None for row in rows)
        head = "this place looks like a training image's" if placed else "the image looks like"
        canvas.text((LEFT, TOP + 14), head, size=SMALL, colour=MUTED)
    for row, top in zip(rows, LEDGER.tops(len(rows)), strict=False):
        _draw_row(canvas, row, top + ROW // 2)
    return canvas.image


def stack(images: Sequence[Image.Image]) -> Image.Image:
    """Several sheets in one column, flush left."""
    if not images:
        raise ValueError("stack needs at least one image")
    column = Image.new(
        "RGB", (max(image.width for image in images), sum(image.height for image in images)), PAPER
    )
    top = 0
    for image in images:
        column.paste(image, (0, top))
        top += image.height
    return column


def _draw_row(canvas: Canvas, row: EvidenceSheetRow, middle: int) -> None:
    left = LEFT
    if row.place is not None:
        canvas.picture((left, middle - THUMB // 2), row.place, THUMB)
        left += THUMB + LIKE
        canvas.text((left - LIKE // 2, middle), "≈", size=TITLE, colour=MUTED, anchor="mm")
    canvas.picture((left, middle - THUMB // 2), row.source, THUMB)
    left += THUMB + 20
    beside, above = (
        LEDGER.factors - FACTORS - left,
        LEDGER.points - left,
    )  # room beside the numbers, and above
    told = " · ".join(one for one in (row.mark, row.ahead) if one)
    middle -= 10
    canvas.text((left, middle - 4), row.class_name, size=BODY, bold=True, width=above)
    words = f"{row.part}, #{row.prototype}" if row.part else f"prototype #{row.prototype}"
    canvas.text((left, middle + 20), words, size=SMALL, colour=MUTED, width=beside)
    canvas.text((left, middle + 42), told, size=SMALL, colour=MUTED, width=above)
    Notice(row.warning, LEDGER.factors - left).draw(canvas, (left, middle + (52 if told else 30)))
