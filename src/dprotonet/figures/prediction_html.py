"""A prediction as a notebook shows it: class, probabilities, and the points that add up to the logit.

No picture and no script. Colours of text and ground are the notebook's own, so that it reads in light and
dark; the sign of a number says what a bar's colour says. Everything that users named is escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dprotonet.figures.style import AGAINST, FOR, sentence
from dprotonet.percent import percent

SHOWN = 5  # rows; the others are summed up
BAR = 10  # em, of the largest contribution

_CELL = "padding:.15em .7em;white-space:nowrap;text-align:"
_LEAST = 0.0005  # of a probability that is told


@dataclass(frozen=True)
class PointsRow:
    """One prototype: similarity × weight = points."""

    name: str
    source: str
    similarity: float | None  # None where several are summed up
    weight: float | None
    points: float


def prediction_html(
    class_name: str,
    *,
    caption: str,
    probabilities: Sequence[tuple[str, float]],
    rows: Sequence[PointsRow],
    logit: float,
    warning: str = "",
) -> str:
    """The likeliest classes, and the rows, the largest points first, as far as there is room for them."""
    others = ", ".join(
        f"{escape(name)} {percent(share)}"
        for name, share in probabilities
        if name != class_name and share >= _LEAST
    )
    share = dict(probabilities)[class_name]
    title = f"<strong>{escape(class_name)}</strong> {percent(share)}"
    faint = " · ".join(part for part in (escape(caption), f"then {others}" if others else "") if part)
    return (
        '<div style="max-width:56em;overflow-x:auto">'
        f'{_warned(warning)}<p style="margin:.3em 0">{title} <span style="opacity:.75">{faint}</span></p>'
        f"{_table(rows, logit)}</div>"
    )


def _warned(words: str) -> str:
    if not words:
        return ""
    style = f"margin:.3em 0;padding-left:.6em;border-left:.25em solid {AGAINST}"
    return f'<p style="{style}">{escape(sentence(words))}</p>'


def _table(rows: Sequence[PointsRow], logit: float) -> str:
    if not rows:
        return '<p style="margin:.3em 0">No prototypes, so no evidence: this is a black box.</p>'
    shown = rows[:SHOWN]
    rest = logit - sum(row.points for row in shown)
    largest = max(abs(value) for value in (*(row.points for row in shown), rest, 1e-12))
    summed = PointsRow(f"{len(rows[SHOWN:])} others", "", None, None, rest)
    body = [_line(row, largest) for row in (*shown, *([summed] if rows[SHOWN:] else []))]
    return (
        '<table style="border-collapse:collapse;font-size:inherit;font-variant-numeric:tabular-nums">'
        f"<thead>{_heads()}</thead><tbody>{''.join(body)}</tbody><tfoot>{_sum(logit)}</tfoot></table>"
    )


def _heads() -> str:
    heads = {"looks like": "left", "from": "left", "similarity": "right", "× weight": "right"}
    cells = [f'<th scope="col" style="{_CELL}{side}">{name}</th>' for name, side in heads.items()]
    cells.append(f'<th scope="col" colspan="2" style="{_CELL}left">= points</th>')
    return f"<tr>{''.join(cells)}</tr>"


def _line(row: PointsRow, largest: float) -> str:
    words = "".join(f'<td style="{_CELL}left">{escape(text)}</td>' for text in (row.name, row.source))
    factors = ("" if value is None else f"{value:.3f}" for value in (row.similarity, row.weight))
    numbers = "".join(f'<td style="{_CELL}right">{text}</td>' for text in factors)
    wide, colour = abs(row.points) / largest * BAR, FOR if row.points >= 0 else AGAINST
    bar = f'<div style="width:{wide:.2f}em;height:.7em;background:{colour}"></div>'
    return (
        f'<tr>{words}{numbers}<td style="{_CELL}right">{_signed(row.points)}</td>'
        f'<td style="{_CELL}left;min-width:{BAR}em">{bar}</td></tr>'
    )


def _sum(logit: float) -> str:
    edge = "border-top:1px solid currentColor"
    return (
        f'<tr><td colspan="4" style="{_CELL}left;{edge}">sum: the logit of the class</td>'
        f'<td style="{_CELL}right;{edge}"><strong>{_signed(logit)}</strong></td><td style="{edge}"></td></tr>'
    )


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
