"""The sheet of decision regions: pairs of pictures, how truth is drawn, and what is counted."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from dprotonet.figures import DecisionRegion, GridAnswer, decision_regions_sheet
from dprotonet.figures.decision_regions import SEAM, TILE
from dprotonet.figures.style import FOUND_BOX, MARGIN, PAPER, TRUE_BOX

IMAGE = torch.full((3, 26, 26), 128, dtype=torch.uint8)
COLD = torch.zeros(26, 26)
MASK = torch.zeros(26, 26, dtype=torch.bool)
MASK[4:12, 4:12] = True
SCALE = TILE // 26


def region(**given: object) -> DecisionRegion:
    return DecisionRegion(IMAGE, COLD, GridAnswer("robin 90%", True), **given)  # type: ignore[arg-type]


def pixel(sheet: Image.Image, row: int, column: int, *, hot: bool) -> tuple[int, ...]:
    """The colour at the upper left corner of a pixel of the only image, in its left or its right picture."""
    left = MARGIN + (TILE + SEAM if hot else 0)
    found = sheet.getpixel((left + column * SCALE + 1, MARGIN + row * SCALE + 1))
    assert isinstance(found, tuple)
    return found


def is_colour(found: tuple[int, ...], colour: str) -> bool:
    return all(abs(one - other) < 60 for one, other in zip(found, ImageColor.getrgb(colour)[:3], strict=True))


def test_at_the_edge_of_a_box_the_truth_is_red_and_what_was_found_is_yellow() -> None:
    sheet = decision_regions_sheet([region(truth=[(4, 5, 12, 14)], box=(15, 16, 22, 24))])
    assert is_colour(pixel(sheet, 5, 8, hot=False), TRUE_BOX)
    assert is_colour(pixel(sheet, 5, 8, hot=True), TRUE_BOX)
    assert is_colour(pixel(sheet, 16, 18, hot=True), FOUND_BOX)
    assert pixel(sheet, 16, 18, hot=False) == (128, 128, 128)  # what was found is on the heatmap only
    assert pixel(sheet, 9, 8, hot=False) == (128, 128, 128)  # nothing inside a box


def test_a_mask_is_outlined_in_white() -> None:
    sheet = decision_regions_sheet([region(truth=MASK)])
    edges = np.asarray(sheet)[MARGIN + 4 * SCALE : MARGIN + 4 * SCALE + 2, MARGIN + 8 * SCALE]
    assert any(is_colour(tuple(map(int, edge)), PAPER) for edge in edges)


def test_missing_and_empty_truths_are_drawn_without_and_counted(written: list[str]) -> None:
    nothing = torch.zeros(26, 26, dtype=torch.bool)
    decision_regions_sheet([region(truth=MASK), region(), region(truth=nothing), region(truth=[])])
    assert "3 of 4 without truth" in written
    assert written.count("truth") == 1  # in the legend


def test_where_no_truth_is_wanted_none_is_missed(written: list[str]) -> None:
    decision_regions_sheet([region()], truth_wanted=False)
    assert not [line for line in written if "truth" in line]


def test_every_pair_has_its_words_and_rows_are_filled(written: list[str]) -> None:
    regions = [region(caption=f"{number}.png") for number in range(5)]
    wide = decision_regions_sheet(regions, title="chest", columns=5)
    tall = decision_regions_sheet(regions, title="chest", columns=2)
    assert wide.width > 2 * tall.width
    assert tall.height > 2 * wide.height
    assert {"chest", "✓ robin 90%", "0.png", "4.png"} <= set(written)


def test_a_note_says_what_the_heatmaps_are_of(written: list[str]) -> None:
    plain = decision_regions_sheet([region()], title="chest")
    noted = decision_regions_sheet([region()], title="chest", note="decoder fast")
    assert "decoder fast" in written
    assert noted.height > plain.height


def test_sizes_may_differ_and_images_may_be_grey() -> None:
    flat = DecisionRegion(IMAGE[:1, :13], COLD[:13], GridAnswer("wren"), truth=MASK[:13])
    assert decision_regions_sheet([flat, region()]).height == decision_regions_sheet([region()] * 2).height


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one image"):
        decision_regions_sheet([])
    with pytest.raises(ValueError, match="columns must be at least 1"):
        decision_regions_sheet([region()], columns=0)
