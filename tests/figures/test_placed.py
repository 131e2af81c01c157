"""A place of an image, large, with the whole in a corner; the sheet of parts; what evidence says of them."""

import pytest
import torch

from dprotonet.figures import EvidenceSheetRow, PartRow, cropped, evidence_sheet, part_sheet, placed
from dprotonet.figures.words import looks_like


def halves() -> torch.Tensor:
    """Left half black, right half white."""
    image = torch.zeros(3, 28, 28, dtype=torch.uint8)
    image[:, :, 14:] = 255
    return image


def test_a_crop_shows_what_is_in_the_box_and_nothing_else() -> None:
    assert cropped(halves(), (14, 0, 28, 14), side=40).float().mean() == 255
    assert cropped(halves(), (0, 14, 14, 28), side=40).float().mean() == 0
    assert cropped(halves(), (0, 0, 28, 14), side=40).shape == (3, 20, 40)
    with pytest.raises(ValueError, match="does not lie within"):
        cropped(halves(), (20, 0, 30, 10))


@pytest.mark.parametrize(("at", "right"), [((2, 2, 4, 4), True), ((8, 2, 10, 4), False), (None, True)])
def test_the_whole_image_is_in_the_corner_away_from_the_place(
    at: tuple[int, int, int, int] | None, right: bool
) -> None:
    shown = placed(halves(), (0, 0, 12, 12), at=at, side=100)
    assert shown.shape == (3, 100, 100)
    corners = [bool(shown[:, 60:, :40].any()), bool(shown[:, 60:, 60:].any())]
    assert corners == [not right, right]  # the crop itself is black
    assert not shown[:, :60].any()
    yellow = (shown[0] > 200) & (shown[1] > 180) & (shown[2] < 90)
    assert yellow.any()  # the box on the small image


def test_a_sliver_has_no_corner_to_spare() -> None:
    assert torch.equal(placed(halves(), (0, 0, 28, 2), side=60), cropped(halves(), (0, 0, 28, 2), side=60))


def test_parts_are_rows_of_places(written: list[str]) -> None:
    row = PartRow("prototype #3", "beak", "under it in 80%", [halves()] * 4, [(0, 0, 6, 6)] * 4)
    one, two = (part_sheet([row] * count, title="Parts of robin", note="n") for count in (1, 2))
    assert {"Parts of robin", "beak", "prototype #3", "under it in 80%"} <= set(written)
    assert two.height > one.height
    wide = PartRow("prototype #3", "beak", "", [halves()] * 20, [(0, 0, 6, 6)] * 20)
    assert part_sheet([wide], title="t").width > one.width
    with pytest.raises(ValueError, match="prototype #3: 4 images, but 1 boxes"):
        part_sheet([PartRow("prototype #3", "", "", [halves()] * 4, [(0, 0, 6, 6)])], title="t")


def test_what_evidence_says() -> None:
    assert looks_like("") == "looks like"
    assert looks_like("beak") == "its beak, like the beak of"
    assert looks_like("part A") == "its part A, like part A of"


def test_a_long_note_of_parts_is_broken_and_not_cut() -> None:
    row = PartRow("prototype #3", "beak", "", [halves()] * 3, [(0, 0, 6, 6)] * 3)
    short, long = (part_sheet([row], title="t", note="what is shown " * times) for times in (1, 12))
    assert short.width == long.width
    assert long.height > short.height


def test_rows_of_evidence_say_what_they_are_sorted_by() -> None:
    rows = [
        EvidenceSheetRow(halves(), "robin", 3, 0.5, 2.0, 1.0, halves(), "beak", said)
        for said in ("", "0.83 ahead of wren")
    ]
    plain, told = (
        evidence_sheet(halves(), title="t", probabilities=[("robin", 1.0)], rows=[row], rest=0.0, logit=1.0)
        for row in rows
    )
    assert plain.size == told.size
    assert plain.tobytes() != told.tobytes()
