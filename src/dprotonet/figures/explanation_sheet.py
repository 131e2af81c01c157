"""Why the network decided, with the place in both images: this looks like that, and how much it counts.

The paper's inference figure: at left the input and its predicted classes; then one row a prototype, the input
with the prototype's heatmap beside the prototype's source image with its own; at right similarity × weight =
points, adding up to the logit. Making the heatmaps is left to interpretation, colouring them to `overlay`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.decision import LEFT, PICTURE, TOP, Decision
from dprotonet.figures.ledger import FACTORS, Ledger
from dprotonet.figures.notice import Notice
from dprotonet.figures.overlay import draw_key
from dprotonet.figures.style import BODY, MARGIN, MUTED, SMALL, font, wrapped
from dprotonet.figures.words import looks_like

THUMB, ROW = 168, 190  # edge of a picture, and height of its row
WORDS = 124  # room for "looks like" between the two pictures
SOURCE = LEFT + THUMB + WORDS  # where the prototype's picture begins
NAME = SOURCE + THUMB + 28  # where its class name begins
NUMBERS = ROW // 2 + 30  # the numbers stand beneath the class name
NOTE = 28  # height of a line beneath it
KEY = 56  # room for the colour key beneath the probabilities
LEDGER = Ledger(left=LEFT, factors=NAME + FACTORS, top=TOP, row=ROW, numbers=NUMBERS, width=400)

BOXED = "box: the place, with a margin around it"
ORDERED = "rows: farthest ahead of the other class first"


@dataclass(frozen=True)
class ExplanationRow:
    """One prototype's part in a logit, seen in both images: `contribution` is `similarity` times `weight`."""

    input_overlay: Tensor
    """The input with this prototype's heatmap over it, (3, H, W) uint8."""
    source_overlay: Tensor
    """The prototype's source image with its own heatmap over it, (3, H, W) uint8."""
    class_name: str
    prototype: int
    similarity: float
    weight: float
    contribution: float
    part: str = ""
    """What people call the part, if it has a name."""
    boxed: bool = False
    """Whether a box on the pictures marks its place."""
    ahead: str = ""
    """How far it is ahead of another class's prototype of the same part, in words."""
    mark: str = ""
    """How reliable the row is."""
    warning: str = ""
    """What is wrong with the pair of pictures, if anything is."""


def explanation_sheet(
    image: Tensor,
    *,
    title: str,
    probabilities: Sequence[tuple[str, float]],
    explained: str | None = None,
    rows: Sequence[ExplanationRow],
    rest: float,
    logit: float,
    notice: str = "",
) -> Image.Image:
    """The sheet for one image (3, H, W) uint8 and the logit of `explained`, by default the likeliest class.

    `rows` are drawn in the order given, `rest` is what all other prototypes contribute together. Numbers that
    do not add up are refused. A `notice` stands in amber above the predicted class.
    """
    decision = Decision(title, probabilities, rows, rest, logit, explained, notice)
    return decision_sheet(image, decision, rows)


def decision_sheet(image: Tensor, decision: Decision, rows: Sequence[ExplanationRow]) -> Image.Image:
    """The same of a decision whose words are given, such as one label of several; `rows` are its rows."""
    notes = [BOXED] if any(row.boxed for row in rows) else []
    notes += [ORDERED] if any(row.ahead for row in rows) else []
    bottom = max(decision.bottom + KEY + NOTE * len(notes), LEDGER.bottom(len(rows)))
    canvas = Canvas(LEDGER.right + MARGIN, bottom + MARGIN)
    decision.draw(canvas, image)
    draw_key(canvas, (MARGIN, decision.bottom + KEY // 2), PICTURE)
    for place, note in enumerate(notes):
        top = decision.bottom + KEY + 6 + NOTE * place
        canvas.text((MARGIN, top), note, size=SMALL, colour=MUTED, width=PICTURE)
    LEDGER.draw(canvas, decision)
    if rows:
        _draw_heads(canvas)
    for row, top in zip(rows, LEDGER.tops(len(rows)), strict=False):
        _draw_row(canvas, row, top)
    return canvas.image


def _draw_heads(canvas: Canvas) -> None:
    for left, head in ((LEFT, "this image"), (SOURCE, "a training image")):
        canvas.text((left, TOP + 14), head, size=SMALL, colour=MUTED)


def _draw_row(canvas: Canvas, row: ExplanationRow, top: int) -> None:
    middle = top + ROW // 2
    for left, shown in ((LEFT, row.input_overlay), (SOURCE, row.source_overlay)):
        canvas.picture((left, middle - THUMB // 2), shown, THUMB)
    _draw_between(canvas, looks_like(row.part), middle)
    Notice(row.warning, WORDS - 12).draw(canvas, (LEFT + THUMB + 8, middle + 30))
    names = wrapped(row.class_name, LEDGER.points - NAME, font(BODY, bold=True), lines=2)
    for place, name in enumerate(names):
        canvas.text((NAME, middle - 12 - 24 * (len(names) - place)), name, bold=True)
    number = f"prototype #{row.prototype}"
    canvas.text((NAME, middle - 10), number, size=SMALL, colour=MUTED)
    after = NAME + font(SMALL).getlength(number) + 18
    canvas.text((after, middle - 10), row.mark, size=SMALL, colour=MUTED, width=LEDGER.points - after)
    for place, line in enumerate(wrapped(row.ahead, LEDGER.points - NAME, font(SMALL), lines=2)):
        canvas.text((NAME, top + NUMBERS + 34 + 20 * place), line, size=SMALL, colour=MUTED)


def _draw_between(canvas: Canvas, words: str, middle: int) -> None:
    """What stands between the two pictures, on as many lines as it needs."""
    lines = wrapped(words, WORDS - 12, font(BODY), lines=5)
    for place, line in enumerate(lines):
        height = middle + 24 * (place - (len(lines) - 1) / 2)
        canvas.text((LEFT + THUMB + WORDS // 2, height), line, anchor="mm")
