"""Numbers as they are written, and as they are drawn."""

import pytest
import torch

from dprotonet.report.chart import HEIGHT, WIDTH, chart
from dprotonet.report.content import Argument, CaseRow, Curve, PushMark
from dprotonet.report.embed import card_edge
from dprotonet.report.prototypes import whereabouts
from dprotonet.report.words import counted, percent, points
from report.made_up_report import bird


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.8875, "88.8 %"),
        (1.0, "100.0 %"),
        (0.99999, "> 99.9 %"),
        (0.0, "0.0 %"),
        (0.00001, "< 0.1 %"),
        (None, "–"),
    ],
)
def test_a_share_is_never_rounded_to_certainty(share: float | None, written: str) -> None:
    assert percent(share).replace("\u202f", " ") == written


def test_words() -> None:
    assert (points(-0.004), points(1.005), points(-2)) == ("0.00", "+1.00", "−2.00")
    assert (counted(1, "image"), counted(1200, "image")) == ("1 image", "1,200 images")


def test_pictures_shrink_where_there_are_many() -> None:
    assert [card_edge(count) for count in (250, 400, 401, 2000)] == [224, 224, 144, 96]


def test_the_rest_makes_rounded_numbers_add_up() -> None:
    row = CaseRow(0, "a", "b", None, bird(96), False, 1.006, 1.0, 1.006)
    argument = Argument("a", "said", (row, row, row), 4, 4.004)
    assert argument.rest == pytest.approx(4.00 - 3 * 1.01)


def test_places_of_the_chart_lie_inside_and_in_order() -> None:
    curve = Curve(
        tuple(range(1, 101)),
        tuple(n / 100 for n in range(100)),
        (0.5,) * 100,
        (PushMark(100, 0.5, 0.4),),
        100,
    )
    drawn = chart(curve)
    for x, y in (*drawn.train, *drawn.val):
        assert drawn.left <= x <= drawn.right < WIDTH
        assert drawn.top <= y <= drawn.bottom < HEIGHT
    assert [x for x, _ in drawn.train] == sorted(x for x, _ in drawn.train)
    assert drawn.train[0][1] > drawn.train[-1][1]  # better is higher up, where y is small
    assert drawn.pushes[0].before < drawn.pushes[0].after
    assert not drawn.dotted
    assert len(drawn.epochs) <= 12
    assert drawn.shares[0].text.replace("\u202f", " ") == "100 %"


def test_a_single_epoch_can_be_drawn() -> None:
    drawn = chart(Curve((1,), (0.97,), (0.99,), (), None))
    assert drawn.dotted
    assert len(drawn.epochs) == 1


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        (slice(0, 3), slice(0, 3), "at the top left"),
        (slice(13, 15), slice(0, 15), "at the bottom centre"),
        (slice(6, 9), slice(12, 15), "at the middle right"),
        (slice(6, 9), slice(6, 9), "in the centre"),
    ],
)
def test_where_a_heatmap_is_hot(rows: slice, columns: slice, said: str) -> None:
    heatmap = torch.full((15, 15), 0.2)
    heatmap[rows, columns] = 1.0
    assert whereabouts(heatmap) == said


def test_a_cold_heatmap_has_a_place_too() -> None:
    assert whereabouts(torch.zeros(4, 4)) == "at the top left"
