"""The explanation sheet: both images and every number of every row, and inputs that do not fit."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from dprotonet.figures import ExplanationRow, explanation_sheet
from dprotonet.figures.decision import PICTURE
from dprotonet.figures.explanation_sheet import LEDGER
from dprotonet.figures.style import AGAINST, FOR, HEAT, MARGIN

GREY = torch.full((3, 20, 20), 128, dtype=torch.uint8)
LONG = "Größter schwarzfüßiger Albatros · Черноногий альбатрос " * 4
ROW = ExplanationRow(GREY, GREY // 2, "robin", 7, similarity=2.0, weight=1.5, contribution=3.0)
LOSS = replace(ROW, class_name="wren", prototype=8, weight=-0.5, contribution=-1.0)


def sheet(rows: list[ExplanationRow], *, rest: float = 0.0, explained: str | None = None) -> Image.Image:
    return explanation_sheet(
        GREY,
        title="a bird",
        probabilities=[("robin", 0.8), ("wren", 0.2)],
        explained=explained,
        rows=rows,
        rest=rest,
        logit=sum(row.contribution for row in rows) + rest,
    )


def share_of(image: Image.Image, colour: str) -> float:
    return float((np.asarray(image) == ImageColor.getrgb(colour)).all(axis=-1).mean())


def test_a_row_says_it_all(written: list[str]) -> None:
    sheet([ROW, LOSS], rest=0.25)
    assert {"a bird", "80.0 %", "this image", "looks like", "a training image"} <= set(written)
    assert {"robin", "prototype #7", "2.00", "1.50", "+3.00"} <= set(written)
    assert {"wren", "prototype #8", "−0.50", "−1.00"} <= set(written)
    assert {"all other prototypes together", "+0.25", "sum of all points = logit of robin", "2.25"} <= set(
        written
    )


def test_a_part_with_a_name_and_the_box_of_its_place_are_told(written: list[str]) -> None:
    sheet([replace(ROW, part="beak")])
    assert "its beak, like the beak of" in " ".join(written)
    assert not any(text.startswith("box:") for text in written)
    plain = sheet([replace(ROW, boxed=True)] * 4)
    assert "box: the place, with a margin around it" in written
    assert plain.size == sheet([ROW] * 4).size


def test_the_order_of_rows_is_told_where_it_is_not_by_points(written: list[str]) -> None:
    sheet([ROW])
    assert not any(text.startswith("rows:") for text in written)
    image = sheet([replace(ROW, ahead="1.00 ahead of wren", boxed=True)])
    assert {
        "rows: farthest ahead of the other class first",
        "box: the place, with a margin around it",
    } <= set(written)
    assert image.height >= sheet([replace(ROW, boxed=True)]).height


def test_the_colours_are_explained(written: list[str]) -> None:
    image = sheet([ROW])
    assert {"ignored", "decisive"} <= set(written)
    left = image.crop((0, 0, MARGIN + PICTURE, image.height))
    assert share_of(left, HEAT[0]) > 0
    assert share_of(left, HEAT[-1]) > 0


@pytest.mark.parametrize("field", ["input_overlay", "source_overlay"])
def test_both_pictures_are_drawn(field: str) -> None:
    other = sheet([replace(ROW, **{field: GREY * 0})])  # type: ignore[arg-type]
    assert other.size == sheet([ROW]).size
    assert other.tobytes() != sheet([ROW]).tobytes()


def test_gains_and_losses_have_their_colours() -> None:
    stairs = sheet([ROW, LOSS]).crop((LEDGER.stairs, 0, LEDGER.right, 600))
    assert share_of(stairs, FOR) > 2 * share_of(stairs, AGAINST) > 0


def test_printed_points_add_up(written: list[str]) -> None:
    rows = [replace(ROW, similarity=k / 3, contribution=k / 2) for k in range(9)]
    sheet(rows, rest=0.114)
    points = [float(text.replace("−", "-")) for text in written if re.fullmatch(r"[+−]?\d+\.\d\d", text)]
    assert points[-1] == pytest.approx(18.11)
    assert sum(points[-11:-1]) == pytest.approx(18.11)


def test_another_class_may_be_explained(written: list[str]) -> None:
    sheet([ROW], explained="wren")
    assert "adding up for wren" in written


def test_it_grows_with_its_rows_and_bears_long_names_and_other_shapes() -> None:
    grey = torch.zeros(1, 10, 30, dtype=torch.uint8)
    odd = replace(ROW, input_overlay=grey, source_overlay=grey.transpose(1, 2), class_name=LONG)
    assert sheet([odd] * 10).height > sheet([ROW] * 3).height >= sheet([]).height
    assert sheet([odd] * 10).width == sheet([]).width


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="add up to 4, but the logit is 5"):
        explanation_sheet(GREY, title="", probabilities=[], rows=[ROW], rest=1.0, logit=5.0)
    with pytest.raises(ValueError, match="prototype 7: similarity 2 × weight 9"):
        sheet([replace(ROW, weight=9.0)])
    with pytest.raises(ValueError, match=r"uint8 of shape .* not torch.float32"):
        sheet([replace(ROW, source_overlay=GREY.float())])
    with pytest.raises(ValueError, match=r"uint8 of shape .*\(20, 20\)"):
        sheet([replace(ROW, input_overlay=GREY[0])])
