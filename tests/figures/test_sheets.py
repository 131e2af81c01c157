"""Prototype, evidence and contact sheets: sizes, sums, directions, and inputs that do not fit."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from dprotonet.figures import (
    EvidenceSheetRow,
    contact_sheet,
    evidence_sheet,
    prototype_sheet,
    stack,
    two_sided,
)
from dprotonet.figures.contrast_sheet import ContrastSheet, ContrastSheetRow, contrast_sheet
from dprotonet.figures.decimals import shares
from dprotonet.figures.evidence_sheet import LEDGER
from dprotonet.figures.prototype_sheet import spotlit
from dprotonet.figures.style import AGAINST, FOR, INK, PAPER, fitted, font, number, wrapped

GREY = torch.full((3, 20, 20), 128, dtype=torch.uint8)
LONG = "Größter schwarzfüßiger Albatros · Черноногий альбатрос " * 4


def pictures(count: int) -> torch.Tensor:
    return torch.randint(
        0, 255, (count, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def row(similarity: float, weight: float, name: str = "robin") -> EvidenceSheetRow:
    return EvidenceSheetRow(GREY, name, 7, similarity, weight, similarity * weight)


def sheet(rows: list[EvidenceSheetRow], rest: float = 0.0) -> Image.Image:
    total = sum(each.contribution for each in rows) + rest
    probabilities = [("robin", 0.8), ("wren", 0.2)]
    return evidence_sheet(GREY, title="t", probabilities=probabilities, rows=rows, rest=rest, logit=total)


def bars(image: Image.Image, colour: str) -> list[tuple[int, int, int]]:
    """Top, left and right of every bar of that colour in the staircase, from the top down."""
    hit = (np.asarray(image)[:, LEDGER.stairs :] == ImageColor.getrgb(colour)).all(axis=-1)
    inked = hit.any(axis=1)
    found = []
    for top in np.flatnonzero(inked & ~np.roll(inked, 1)):
        places = np.flatnonzero(hit[top + 5])  # rules are thinner than that
        if places.size:
            found.append((int(top), int(places[0]), int(places[-1])))
    return found


def test_gains_run_to_the_right_and_losses_to_the_left() -> None:
    image = sheet([row(4, 1), row(2, 1), row(3, -1)], rest=1.0)
    (_, left1, right1), (_, left2, right2), (_, left4, right4) = bars(image, FOR)
    [(_, left3, right3)] = bars(image, AGAINST)
    assert right1 - left1 > right2 - left2
    assert abs(left2 - right1) <= 2, "the second gain begins where the first ended"
    assert abs(right3 - right2) <= 2, "the loss begins where the gains ended …"
    assert left3 < left2, "… and runs back to the left"
    assert abs(left4 - left3) <= 2, "the rest begins where the loss ended"
    assert left4 < right4


def test_the_last_bar_spans_from_zero_to_the_sum() -> None:
    image = sheet([row(4, 1), row(3, -0.5)], rest=0.5)
    zero = bars(image, FOR)[0][1]
    end = bars(image, FOR)[-1][2]
    total = [bar for bar in bars(image, INK) if bar[2] > bar[1]][-1]
    assert total[1] == zero
    assert abs(total[2] - end) <= 1


def test_only_losses() -> None:
    image = sheet([row(4, -1), row(2, -1)], rest=-0.5)
    assert bars(image, FOR) == []
    lefts = [left for _, left, _ in bars(image, AGAINST)]
    assert lefts == sorted(lefts, reverse=True)


def test_printed_points_add_up(written: list[str]) -> None:
    rows = [row(1.115 + 0.0131 * k, 0.337) for k in range(9)]
    sheet(rows, rest=0.114)
    points = [float(text.replace("−", "-")) for text in written if re.fullmatch(r"[+−]\d+\.\d\d", text)]
    total = sum(each.contribution for each in rows) + 0.114
    assert len(points) == 10
    assert round(sum(points), 2) == round(total, 2)
    assert number(total) in written


def test_shares_stay_within_one_digit_of_the_truth() -> None:
    values = [0.004, 0.004, 0.004, -0.336, 1.299]
    rounded = shares(values)
    assert sum(rounded) == pytest.approx(round(sum(values), 2))
    assert all(abs(a - b) < 0.01 for a, b in zip(values, rounded, strict=True))


def test_evidence_without_rows_or_probabilities() -> None:
    assert sheet([], rest=1.5).width == sheet([row(1, 1)]).width
    bare = evidence_sheet(GREY, title="", probabilities=[], rows=[], rest=0.0, logit=0.0)
    assert bare.getcolors(maxcolors=1 << 16) is not None


def test_evidence_grows_with_its_rows_and_bears_long_names() -> None:
    assert sheet([row(1, 1, LONG)] * 9).height > sheet([row(1, 1)]).height
    assert sheet([row(1, 1, LONG)] * 9).width == sheet([row(1, 1)]).width


def test_names_and_leads_have_the_room_that_is_free(written: list[str]) -> None:
    told = EvidenceSheetRow(
        GREY,
        "pathological myopia",
        7,
        2.0,
        2.0,
        4.0,
        GREY,
        ahead="0.98 ahead of retinal detachment",
        mark="steady",
    )
    sheet([told])
    assert {"pathological myopia", "steady · 0.98 ahead of retinal detachment"} <= set(written)


def test_numbers_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to 2, but the logit is 5"):
        evidence_sheet(GREY, title="", probabilities=[], rows=[row(1, 1)], rest=1.0, logit=5.0)
    wrong = EvidenceSheetRow(GREY, "robin", 3, similarity=2.0, weight=2.0, contribution=1.0)
    with pytest.raises(ValueError, match="prototype 3: similarity 2 × weight 2"):
        evidence_sheet(GREY, title="", probabilities=[], rows=[wrong], rest=0.0, logit=1.0)


def test_stack_is_one_column() -> None:
    images = [Image.new("RGB", (30, 10), "red"), Image.new("RGB", (50, 20), "blue")]
    column = stack(images)
    assert column.size == (50, 30)
    assert column.getpixel((40, 5)) == ImageColor.getrgb(PAPER)
    assert column.getpixel((40, 25)) == (0, 0, 255)
    with pytest.raises(ValueError, match="at least one"):
        stack([])


def test_prototypes_are_sorted_by_weight(written: list[str]) -> None:
    prototype_sheet(
        pictures(4), prototype_class=[1, 0, 1, 1], classes=["a", "b"], weights=[0.5, 9.0, 2.0, 1.0]
    )
    assert [text for text in written if text.startswith("#")] == ["#1", "#2", "#3", "#0"]
    assert "2.00" in written


def test_many_classes_are_paged(written: list[str]) -> None:
    names = [f"class {index}" for index in range(200)]
    image = prototype_sheet(pictures(200), prototype_class=range(200), classes=names, max_classes=12)
    assert "12 of 200 classes · 12 prototypes" in written
    assert "class 11" in written
    assert "class 12" not in written
    assert image.height < 12 * 200


def test_unequal_rows_empty_classes_and_long_names(written: list[str]) -> None:
    labels = [0] * 15 + [2]  # fifteen do not fit on one line
    prototype_sheet(pictures(16), prototype_class=labels, classes=["a", "empty", LONG], captions=[LONG] * 16)
    assert {"no prototypes", "15 prototypes", "1 prototype", "3 classes · 16 prototypes"} <= set(written)
    assert any(text.endswith("…") for text in written)


def test_a_single_grey_class(written: list[str]) -> None:
    image = prototype_sheet(pictures(2)[:, :1], prototype_class=[0, 0], classes=["only"])
    assert "1 class · 2 prototypes" in written
    assert len(image.getcolors(maxcolors=1 << 24) or []) > 10


def test_spotlights_leave_the_inside_and_fade_the_outside() -> None:
    image, spotlight = pictures(1)[0], torch.zeros(16, 16)
    spotlight[:8] = 1
    lit = spotlit(image, spotlight)
    assert torch.equal(lit[:, :8], image[:, :8])
    assert lit[:, 8:].float().std() < image[:, 8:].float().std() / 2
    sheets = [
        prototype_sheet(image[None], prototype_class=[0], classes=["a"], spotlights=given)
        for given in (None, spotlight[None])
    ]
    assert sheets[0].size == sheets[1].size
    assert sheets[0].tobytes() != sheets[1].tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prototype_class": [0, 0]}, "prototype_class has 2 entries for 3 sources"),
        ({"weights": [1.0]}, "weights has 1 entries for 3 sources"),
        ({"captions": ["a"] * 4}, "captions has 4 entries for 3 sources"),
        ({"spotlights": torch.ones(2, 16, 16)}, "spotlights has 2 entries for 3 sources"),
        ({"spotlights": torch.ones(3, 8, 8)}, "cannot lie over a source"),
        ({"prototype_class": [0, 1, 5]}, "prototype 2 is of class 5, but there are 2 classes"),
        ({"max_classes": 0}, "max_classes must be at least 1"),
    ],
)
def test_prototypes_that_do_not_match_are_refused(wrong: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"prototype_class": [0, 0, 1], "classes": ["a", "b"], **wrong}
    with pytest.raises(ValueError, match=message):
        prototype_sheet(pictures(3), **given)  # type: ignore[arg-type]


def test_images_must_be_bytes() -> None:
    with pytest.raises(ValueError, match=r"uint8 of shape .* not torch.float32"):
        prototype_sheet(pictures(1).float(), prototype_class=[0], classes=["a"])


def test_a_two_sided_map_has_a_colour_for_each_side_and_leaves_the_rest_grey() -> None:
    image = torch.randint(0, 256, (3, 4, 6), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    heatmap, side = torch.zeros(4, 6), torch.ones(4, 6)
    heatmap[0, 0] = heatmap[1, 1] = 1
    heatmap[2, 2] = 0.25
    side[1, 1] = -1e-9
    drawn, grey = two_sided(image, heatmap, side).float(), image.float().mean(dim=0)
    wanted = {(0, 0): (FOR, 0.85), (1, 1): (AGAINST, 0.85), (2, 2): (FOR, 0.425), (3, 5): (FOR, 0.0)}
    for at, (colour, weight) in wanted.items():
        paint = torch.tensor(ImageColor.getrgb(colour)[:3])
        expected = (1 - weight) * grey[at] + weight * paint
        assert torch.allclose(drawn[:, *at], expected, atol=0.51)


@pytest.mark.parametrize("sides", [False, True])
def test_a_contrast_sheet_says_whose_the_colours_are(sides: bool, written: list[str]) -> None:
    row = ContrastSheetRow("beak", 1.5, 1.0, None, None, None)
    sheet = ContrastSheet(
        "a bird", "Hill Bird", "Vale Bird", ("predicted", ""), (2.0, 1.5), [row], (0, 0, 0), ""
    )
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    contrast_sheet(image, image, replace(sheet, sides=sides))
    assert ("for Vale Bird" in written) == sides
    assert ("decisive" in written) != sides


def test_contact_sheet() -> None:
    plain = contact_sheet(pictures(5), columns=3)
    captioned = contact_sheet(pictures(5), columns=3, captions=[LONG] * 5)
    assert captioned.width == plain.width
    assert captioned.height > plain.height
    two_lines = contact_sheet(pictures(5), columns=3, captions=["a\nb", *"abcd"])
    assert two_lines.height - captioned.height == captioned.height - plain.height > 0  # every row is as deep
    assert contact_sheet(pictures(0), columns=3).width == plain.width
    with pytest.raises(ValueError, match="2 captions for 5 images"):
        contact_sheet(pictures(5), columns=3, captions=["a", "b"])
    with pytest.raises(ValueError, match="columns must be at least 1"):
        contact_sheet(pictures(5), columns=0)


def test_text_is_cut_to_its_width() -> None:
    typeface = font(18)
    assert fitted("short", 500, typeface) == "short"
    cut = fitted("british_shorthair_and_more_1234.jpg", 150, typeface, tail=8)
    assert cut.endswith("…1234.jpg")
    assert typeface.getlength(fitted(LONG, 150, typeface)) <= 150
    lines = wrapped(LONG, 200, typeface, lines=3)
    assert len(lines) == 3
    assert all(typeface.getlength(line) <= 200 for line in lines)
    assert wrapped("", 200, typeface, lines=3) == [""]


def test_numbers_have_a_true_minus_and_no_negative_zero() -> None:
    assert [number(-1.234), number(-0.001), number(2, signed=True)] == ["−1.23", "0.00", "+2.00"]
