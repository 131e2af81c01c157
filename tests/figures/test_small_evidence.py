"""Sheets whose points are tiny: what is printed agrees with itself, and little evidence looks like little."""

import re

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from dprotonet.figures import EvidenceSheetRow, evidence_sheet
from dprotonet.figures.decimals import MOST, factor_decimals, point_decimals
from dprotonet.figures.evidence_sheet import LEDGER
from dprotonet.figures.ledger import FACTORS
from dprotonet.figures.style import AGAINST, FOR, MUTED, font, number
from dprotonet.figures.waterfall import Waterfall, side

GREY = torch.full((3, 20, 20), 128, dtype=torch.uint8)
FOUND = [(0.00468, 1.0011), (0.0034, 1.0011), (0.0012, -0.5007)]  # as a hardly trained network gives them


def sheet(factors: list[tuple[float, float]], rest: float) -> Image.Image:
    rows = [EvidenceSheetRow(GREY, "robin", 7, a, b, a * b) for a, b in factors]
    total = sum(a * b for a, b in factors) + rest
    return evidence_sheet(GREY, title="t", probabilities=[("robin", 1.0)], rows=rows, rest=rest, logit=total)


def printed(written: list[str]) -> list[float]:
    """All numbers of a sheet in the order of drawing: the factors of every row, then points and the sum."""
    told = [text.replace("−", "-") for text in written if re.fullmatch(r"[+−]?\d+\.\d+", text)]
    return [float(text) for text in told]


def share_of(image: Image.Image, colour: str) -> float:
    return float((np.asarray(image) == ImageColor.getrgb(colour)).all(axis=-1).mean())


@pytest.mark.parametrize("scale", [0.1, 1, 10, 100, 1000, 2500])
def test_products_and_sums_agree_as_printed(written: list[str], scale: float) -> None:
    factors = [(a * scale, b) for a, b in FOUND]
    sheet(factors, rest=-0.0007 * scale)
    *factors_told, first, second, third, rest, total = printed(written)
    pairs = zip(factors_told[::2], factors_told[1::2], strict=True)
    digit = 10.0 ** -point_decimals([a * b for a, b in factors])
    for (one, other), points in zip(pairs, (first, second, third), strict=True):
        assert one * other == pytest.approx(points, abs=1.5 * digit)
    assert first + second + third + rest == pytest.approx(total, abs=digit / 100)
    assert first > 0 > rest, "not rounded to nothing"


@pytest.mark.parametrize(
    ("largest", "decimals"), [(0.0, 2), (120.0, 2), (1.0, 2), (0.99, 3), (0.05, 4), (1e-9, MOST)]
)
def test_small_points_have_more_decimals(largest: float, decimals: int) -> None:
    assert point_decimals([largest / 3, -largest]) == decimals


def test_factors_have_as_many_decimals_as_their_product_needs() -> None:
    assert factor_decimals([(2.0, 1.5)], points=2) == 2
    assert factor_decimals([(4.3749, 1.2349)], points=2) == 3
    assert factor_decimals(FOUND, points=4) == MOST


@pytest.mark.parametrize(("step", "colour"), [(-1e-5, AGAINST), (1e-5, FOR), (-1e-17, MUTED), (0.0, MUTED)])
def test_colours_follow_the_sign_before_rounding(step: float, colour: str) -> None:
    assert side(step) == colour


def test_numbers_that_round_to_nothing_have_the_colour_of_their_bars() -> None:
    losses = sheet([(0.000004, -1.0)], rest=-0.000004).crop((LEDGER.left, 0, LEDGER.stairs, 600))
    assert share_of(losses, AGAINST) > 0
    assert share_of(losses, FOR) == 0


def test_little_evidence_looks_like_little() -> None:
    stairs = {
        scale: sheet([(scale, 1.0)], rest=0.0).crop((LEDGER.stairs, 0, 9999, 600)) for scale in (0.01, 10)
    }
    assert share_of(stairs[0.01], FOR) < share_of(stairs[10], FOR) / 50


@pytest.mark.parametrize(
    ("steps", "ends"),
    [
        ([0.005, 0.003, -0.001], (0, 1)),
        ([-0.005], (-1, 0)),
        ([8.0, 0.42], (0, 8.5)),
        ([12.3, -2.0], (0, 13)),
        ([-3.0, 5.0], (-3, 2)),
        ([0.0], (0, 1)),
        ([1.0], (0, 1)),
    ],
)
def test_the_scale_has_round_ends_and_spans_a_point(steps: list[float], ends: tuple[float, float]) -> None:
    found = Waterfall(steps, left=0, width=100)
    assert (found.low, found.high) == pytest.approx(ends)


def test_the_scale_is_told(written: list[str]) -> None:
    sheet([(0.01, 1.0)], rest=0.0)
    assert {"0", "1 point"} <= set(written)
    sheet([(8.42, 1.0)], rest=0.0)
    assert "8.5 points" in written
    sheet([(3.0, -1.0)], rest=-1.2)
    assert "−4.2 points" in written


def test_the_widest_numbers_fit_their_columns() -> None:
    similarity, weight = (font().getlength(number(value, decimals=MOST)) for value in (10.0, -10.0))
    assert similarity + weight < FACTORS
    assert (
        font(bold=True).getlength(number(0.0999, decimals=MOST, signed=True))
        < LEDGER.points - LEDGER.factors - 30
    )
