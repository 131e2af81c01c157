"""The truth's outline and a method's box: which pixels they take, on what ground, and what does not fit."""

import pytest
import torch
from PIL import ImageColor
from torch import Tensor

from dprotonet.figures import outlined
from dprotonet.figures.outline import FINE, boxed, marked
from dprotonet.figures.style import FOUND_BOX, INK, PAPER, TRUE_BOX

GREY = torch.full((3, 9, 12), 128, dtype=torch.uint8)


def truth_at(*pixels: tuple[int, int]) -> Tensor:
    truth = torch.zeros(9, 12, dtype=torch.bool)
    for row, column in pixels:
        truth[row, column] = True
    return truth


def of_colour(picture: Tensor, colour: str) -> Tensor:
    return (picture == torch.tensor(ImageColor.getrgb(colour), dtype=torch.uint8).view(3, 1, 1)).all(dim=0)


def literal(truth: Tensor, width: int) -> list[list[str]]:
    """What every pixel becomes, by looking at all its neighbours; beyond the border there is no truth."""

    def known(row: int, column: int) -> bool:
        inside = 0 <= row < truth.shape[0] and 0 <= column < truth.shape[1]
        return inside and bool(truth[row, column])

    reach = range(-width, width + 1)
    lines = []
    for row in range(truth.shape[0]):
        line = []
        for column in range(truth.shape[1]):
            near = [known(row + down, column + across) for down in reach for across in reach]
            edge = any(near) and not all(near)
            line.append("" if not edge else PAPER if known(row, column) else INK)
        lines.append(line)
    return lines


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_outline_against_a_literal_loop(seed: int, width: int) -> None:
    truth = torch.rand(9, 12, generator=torch.Generator().manual_seed(seed)) < (0.1, 0.5, 0.9, 0.98)[seed]
    drawn = outlined(GREY, truth, width=width)
    expected = literal(truth, width)
    for colour in (PAPER, INK):
        wanted = torch.tensor([[pixel == colour for pixel in line] for line in expected])
        assert torch.equal(of_colour(drawn, colour), wanted)
    untouched = torch.tensor([[pixel == "" for pixel in line] for line in expected])
    assert torch.equal(drawn[:, untouched], GREY[:, untouched])


def test_an_empty_truth_leaves_the_picture_and_a_full_one_frames_it() -> None:
    assert torch.equal(outlined(GREY, truth_at()), GREY)
    framed = of_colour(outlined(GREY, torch.ones(9, 12, dtype=torch.bool)), PAPER)
    assert int(framed.sum()) == 2 * 12 + 2 * 7
    assert not framed[1:-1, 1:-1].any()


@pytest.mark.parametrize("ground", [0, 128, 255])
def test_one_of_both_lines_stands_out_from_any_ground(ground: int) -> None:
    drawn = outlined(torch.full_like(GREY, ground), truth_at((4, 4), (4, 5))).float()
    assert (drawn - ground).abs().max() > 90


def test_pictures_are_not_changed_in_place_and_may_be_grey() -> None:
    grey = GREY[:1].clone()
    drawn = outlined(grey, truth_at((4, 4)))
    assert (drawn.shape, drawn.dtype) == ((3, 9, 12), torch.uint8)
    assert torch.equal(grey, GREY[:1])


@pytest.mark.parametrize("colour", [TRUE_BOX, FOUND_BOX])
def test_a_box_is_coloured_inside_its_edge_and_dark_outside(colour: str) -> None:
    drawn = boxed(GREY, (2, 1, 9, 7), colour=colour)
    area, inner, outer = (torch.zeros(9, 12, dtype=torch.bool) for _ in range(3))
    area[1:7, 2:9] = inner[3:5, 4:7] = outer[0:8, 1:10] = True
    assert torch.equal(of_colour(drawn, colour), area & ~inner)
    assert torch.equal(of_colour(drawn, INK), outer & ~area)
    assert torch.equal(drawn[:, inner | ~outer], GREY[:, inner | ~outer])


def test_true_boxes_are_red_a_found_one_yellow_and_a_mask_white() -> None:
    """At the scale of `FINE`, a box's own corner pixels have its colour."""
    both = marked(GREY, side=12, truth=[(0, 0, 4, 4), (8, 5, 12, 9)], box=(3, 3, 8, 8))
    red, yellow = of_colour(both, TRUE_BOX), of_colour(both, FOUND_BOX)
    assert red[0, 0]
    assert red[9 * FINE - 1, 12 * FINE - 1]
    assert yellow[3 * FINE, 3 * FINE]
    assert yellow[8 * FINE - 1, 8 * FINE - 1]
    assert not of_colour(both, PAPER).any()
    masked = marked(GREY, side=12, truth=truth_at((4, 4), (4, 5)))
    assert of_colour(masked, PAPER).any()
    assert not of_colour(masked, TRUE_BOX).any()


def test_no_true_boxes_leave_the_picture_as_it_is() -> None:
    assert (marked(GREY, side=12, truth=[]) == 128).all()


def test_lines_are_equally_thin_whatever_the_size_of_the_image() -> None:
    small, large = (torch.full((3, 9 * k, 12 * k), 128, dtype=torch.uint8) for k in (1, 40))
    truth = torch.zeros(9, 12, dtype=torch.bool)
    truth[3:6, 3:9] = True
    enlarged = truth.repeat_interleave(40, 0).repeat_interleave(40, 1)
    drawn = [marked(image, side=60, truth=t) for image, t in ((small, truth), (large, enlarged))]
    assert drawn[0].shape == drawn[1].shape == (3, 45 * FINE, 60 * FINE)
    assert torch.equal(of_colour(drawn[0], PAPER), of_colour(drawn[1], PAPER))


def test_few_pixels_are_not_lost_when_the_image_shrinks() -> None:
    truth = torch.zeros(900, 1200, dtype=torch.bool)
    truth[501, 733] = True
    image = torch.full((3, 900, 1200), 128, dtype=torch.uint8)
    assert of_colour(marked(image, side=50, truth=truth), PAPER).any()
    assert (marked(image, side=50, box=(1199, 899, 1200, 900)) != 128).any()


def test_a_box_moves_with_its_picture() -> None:
    yellow = of_colour(marked(GREY, side=24, box=(3, 0, 6, 9)), FOUND_BOX)
    columns = yellow.any(dim=0).nonzero().flatten()
    assert (int(columns[0]), int(columns[-1])) == (3 * 2 * FINE, 6 * 2 * FINE - 1)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(4, 4\) torch.bool over \(3, 9, 12\) .* as large as its picture"):
        outlined(GREY, torch.zeros(4, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\(9, 12\) torch.float32 .* must be bool"):
        outlined(GREY, torch.zeros(9, 12))
    with pytest.raises(ValueError, match=r"a picture must be uint8 of shape"):
        outlined(GREY / 255, truth_at())
    for box in ((0, 0, 13, 9), (-1, 0, 5, 5), (5, 0, 5, 5), (0, 4, 5, 3)):
        with pytest.raises(ValueError, match=r"does not lie within a picture of 12 × 9 pixels"):
            boxed(GREY, box)
        with pytest.raises(ValueError, match=r"does not lie within a picture of 12 × 9 pixels"):
            marked(GREY, side=50, box=box)
