"""Why the network decided: the input, the prototypes it looks like, and how their points add up to the logit.

The bars form a staircase: each begins where the one above ended and runs to the right for points gained, to
the left for points lost; the last spans from zero to the sum. The decision is a sum and nothing but a sum,
and the sheet is laid out so that a reader can check it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.stairs import Stairs, shares
from dprotonet.figures.style import (
    AGAINST,
    BODY,
    FOR,
    GAP,
    HAIRLINE,
    INK,
    MARGIN,
    MUTED,
    PAPER,
    SMALL,
    TITLE,
    number,
)

PICTURE, THUMB = 380, 92  # edges of the input and of a prototype's picture
ROW, LINE = 112, 54  # heights of a prototype's row and of a row of text
HEADER = 66  # title, and beneath it the heads of the columns
LEFT = MARGIN + PICTURE + 64  # where the right half begins
FACTORS, POINTS = LEFT + 548, LEFT + 676  # right edges of "similarity × weight" and of the points
STAIRS, WIDTH = LEFT + 712, 420  # where the staircase begins, and how wide it is
PROBABILITY_LINE = 34


@dataclass(frozen=True)
class EvidenceRow:
    """One prototype's part in a logit: `contribution` is `similarity` times `weight`."""

    source: Tensor  # (3, H, W) uint8
    class_name: str
    prototype: int
    similarity: float
    weight: float
    contribution: float


def evidence_sheet(
    image: Tensor,
    *,
    title: str,
    probabilities: Sequence[tuple[str, float]],
    rows: Sequence[EvidenceRow],
    rest: float,
    logit: float,
    explained: str | None = None,
) -> Image.Image:
    """The sheet for one image (3, H, W) uint8 and the logit of one class.

    `rows` are drawn in the order given, `rest` is what all other prototypes contribute together. The logit is
    that of the class `explained`, by default the most probable one. Numbers that do not add up are refused.
    """
    _check_sums(rows, rest=rest, logit=logit)
    predicted = max(probabilities, key=lambda pair: pair[1])[0] if probabilities else None
    explained = predicted if explained is None else explained
    canvas = Canvas(STAIRS + WIDTH + MARGIN, _height(len(rows), len(probabilities)))
    canvas.text((MARGIN, MARGIN + 22), title, size=TITLE, bold=True, width=STAIRS + WIDTH - MARGIN)
    _draw_input(canvas, image, predicted=predicted, probabilities=probabilities)
    _draw_sum(canvas, rows, logit=logit, explained=explained)
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


def _check_sums(rows: Sequence[EvidenceRow], *, rest: float, logit: float) -> None:
    for row in rows:
        if not math.isclose(row.similarity * row.weight, row.contribution, rel_tol=1e-2, abs_tol=1e-2):
            raise ValueError(
                f"prototype {row.prototype}: similarity {row.similarity:g} × weight {row.weight:g} "
                f"is not its contribution {row.contribution:g}"
            )
    total = sum(row.contribution for row in rows) + rest
    if not math.isclose(total, logit, rel_tol=1e-3, abs_tol=1e-2):
        raise ValueError(f"the contributions and the rest add up to {total:g}, but the logit is {logit:g}")


def _height(rows: int, probabilities: int) -> int:
    left = HEADER + PICTURE + 60 + probabilities * PROBABILITY_LINE
    right = HEADER + 36 + rows * ROW + 2 * LINE + GAP
    return max(left, right) + 2 * MARGIN


def _draw_input(
    canvas: Canvas, image: Tensor, *, predicted: str | None, probabilities: Sequence[tuple[str, float]]
) -> None:
    top = MARGIN + HEADER
    canvas.picture((MARGIN, top), image, PICTURE)
    if predicted is None:
        return
    canvas.text((MARGIN, top + PICTURE + 36), "predicted", size=SMALL, colour=MUTED)
    canvas.text((MARGIN + 86, top + PICTURE + 36), predicted, bold=True, width=PICTURE - 86)
    for place, (name, probability) in enumerate(probabilities):
        middle = top + PICTURE + 76 + place * PROBABILITY_LINE
        _draw_probability(canvas, middle, name=name, probability=probability, chosen=name == predicted)


def _draw_probability(canvas: Canvas, middle: int, *, name: str, probability: float, chosen: bool) -> None:
    ink = INK if chosen else MUTED
    start, full = MARGIN + 172, 136
    canvas.text((MARGIN, middle), name, size=SMALL, colour=ink, width=160, anchor="lm")
    canvas.bar((start, middle - 5), (start + full, middle + 5), HAIRLINE)
    canvas.bar((start, middle - 5), (start + full * probability, middle + 5), FOR if chosen else MUTED)
    canvas.text((MARGIN + PICTURE, middle), f"{probability:.1%}", size=SMALL, colour=ink, anchor="rm")


def _draw_sum(canvas: Canvas, rows: Sequence[EvidenceRow], *, logit: float, explained: str | None) -> None:
    """The right half: one row a prototype, the rest, and the sum beneath a heavy rule."""
    contributions = [row.contribution for row in rows]
    steps = [*contributions, logit - sum(contributions)]  # the rest, free of the caller's rounding
    shown = shares(steps)
    stairs = Stairs(steps, left=STAIRS, width=WIDTH)
    middles = [MARGIN + HEADER + 36 + ROW // 2 + place * ROW for place in range(len(rows))]
    rest = MARGIN + HEADER + 36 + len(rows) * ROW + LINE // 2
    total = rest + LINE + GAP
    _draw_heads(canvas, explained, factors=bool(rows))
    stairs.draw(canvas, [*middles, rest], top=MARGIN + HEADER + 30, total=total)
    for row, middle, points in zip(rows, middles, shown, strict=False):
        _draw_row(canvas, row, middle, points=points)
    others = "all other prototypes together" if rows else "all prototypes together"
    canvas.text((LEFT, rest), others, anchor="lm", colour=MUTED)
    _draw_points(canvas, rest, shown[-1])
    canvas.rule((LEFT, rest + LINE // 2 + 6), (STAIRS + WIDTH, rest + LINE // 2 + 6), colour=INK, width=2)
    name = "sum of all points = logit" + (f" of {explained}" if explained else "")
    canvas.text((LEFT, total), name, anchor="lm", bold=True, width=POINTS - LEFT - 110)
    canvas.text((POINTS, total), number(logit), anchor="rm", bold=True)


def _draw_heads(canvas: Canvas, explained: str | None, *, factors: bool) -> None:
    baseline = MARGIN + HEADER + 14
    if factors:
        canvas.text((LEFT, baseline), "the image looks like", size=SMALL, colour=MUTED)
        canvas.text((FACTORS, baseline), "similarity × weight", size=SMALL, colour=MUTED, anchor="rs")
    canvas.text(
        (POINTS, baseline), "= points" if factors else "points", size=SMALL, colour=MUTED, anchor="rs"
    )
    heading = "adding up" + (f" for {explained}" if explained else "")
    canvas.text((STAIRS, baseline), heading, size=SMALL, colour=MUTED, width=WIDTH)


def _draw_row(canvas: Canvas, row: EvidenceRow, middle: int, *, points: float) -> None:
    canvas.picture((LEFT, middle - THUMB // 2), row.source, THUMB)
    left = LEFT + THUMB + 20
    canvas.text((left, middle - 4), row.class_name, size=BODY, bold=True, width=FACTORS - left - 150)
    canvas.text((left, middle + 20), f"prototype #{row.prototype}", size=SMALL, colour=MUTED)
    for place, factor in ((FACTORS - 96, number(row.similarity)), (FACTORS, number(row.weight))):
        canvas.text((place, middle), factor, anchor="rm")
    for place, sign in ((FACTORS - 78, "×"), (FACTORS + 22, "=")):
        canvas.text((place, middle), sign, anchor="mm", colour=MUTED)
    _draw_points(canvas, middle, points)


def _draw_points(canvas: Canvas, middle: int, points: float) -> None:
    colour = AGAINST if points < 0 else FOR
    canvas.text((POINTS, middle), number(points, signed=True), anchor="rm", colour=colour, bold=True)
