"""Overlap with a truth: against scikit-learn, on planted maps, and with nothing to find."""

import math

import pytest
import torch
from sklearn import metrics as reference
from torch import Tensor

from dprotonet.metrics.controls import centre_gaussian, random_maps
from dprotonet.metrics.localization import (
    SHARES,
    Overlap,
    energy_share,
    largest_part,
    overlap,
    pointing,
    pointing_within,
    sweep,
    top_share,
)

N, SIZE = 4, (9, 8)
PIXELS = SIZE[0] * SIZE[1]


def truths() -> Tensor:
    """A box of another place and size in every image."""
    truth = torch.zeros(N, *SIZE, dtype=torch.bool)
    for image, box in enumerate(truth):
        box[image : 2 * image + 2, 1 : image + 3] = True
    return truth


@pytest.mark.parametrize("share", [0.0, 0.004, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("maps", [torch.ones(N, *SIZE), random_maps(N, SIZE, 0)], ids=["tied", "untied"])
def test_the_top_share_has_exactly_that_many_pixels(maps: Tensor, share: float) -> None:
    found = top_share(maps, share)
    assert found.dtype == torch.bool
    assert found.flatten(1).sum(dim=1).tolist() == [round(share * PIXELS)] * N


def test_the_top_share_is_the_hottest_and_tied_pixels_come_in_reading_order() -> None:
    maps = torch.tensor([[[0.0, 3.0], [0.0, 2.0]]])
    assert top_share(maps, 0.5).tolist() == [[[False, True], [False, True]]]
    assert top_share(maps, 0.75).tolist() == [[[True, True], [False, True]]]


@pytest.mark.parametrize("share", [-0.01, 20, float("nan")])
def test_a_share_is_not_a_percentage(share: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        top_share(random_maps(1, SIZE, 0), share)
    with pytest.raises(ValueError, match="from 0 to 1"):
        sweep(random_maps(N, SIZE, 0), truths(), [0.5, share])


def test_overlap_is_that_of_scikit_learn() -> None:
    found, truth = random_maps(N, SIZE, 0) > 0.6, truths()
    values = overlap(found, truth)
    for image in range(N):
        pair = (truth[image].flatten().numpy(), found[image].flatten().numpy())
        assert values.dice[image].item() == pytest.approx(reference.f1_score(*pair))
        assert values.iou[image].item() == pytest.approx(reference.jaccard_score(*pair))
        assert values.ppv[image].item() == pytest.approx(reference.precision_score(*pair))
        assert values.sensitivity[image].item() == pytest.approx(reference.recall_score(*pair))


def test_the_truth_itself_is_a_perfect_finding_and_its_complement_none() -> None:
    assert all(values.tolist() == [1] * N for values in overlap(truths(), truths()))
    assert all(values.tolist() == [0] * N for values in overlap(~truths(), truths()))


def test_finding_nothing_is_zero_and_having_nothing_to_find_is_nan() -> None:
    nothing, truth = torch.zeros(N, *SIZE, dtype=torch.bool), truths()
    assert all(values.tolist() == [0] * N for values in overlap(nothing, truth))
    truth[1] = False
    for found in (nothing, truths(), ~nothing):
        for values in overlap(found, truth):
            assert values.isnan().tolist() == [False, True, False, False]


def test_an_image_without_truth_is_left_out_everywhere_and_never_a_hit() -> None:
    maps, truth = random_maps(N, SIZE, 0), truths()
    truth[2] = False
    expected = [False, False, True, False]
    assert pointing(maps, truth).isnan().tolist() == expected
    assert energy_share(maps, truth).isnan().tolist() == expected
    for values in sweep(maps, truth):
        assert values.isnan().tolist() == [[known] * 99 for known in expected]


def test_the_sweep_is_the_overlap_at_every_share() -> None:
    maps, truth = random_maps(N, SIZE, 0).mul(6).round(), truths()  # many ties
    swept = sweep(maps, truth)
    for column, share in enumerate(SHARES):
        for fast, slow in zip(swept, overlap(top_share(maps, share), truth), strict=True):
            assert fast.shape == (N, 99)
            assert fast[:, column].equal(slow)


def test_a_sweep_from_nothing_to_everything() -> None:
    ends = sweep(random_maps(N, SIZE, 0), truths(), [0, 1])
    assert ends.sensitivity.tolist() == [[0, 1]] * N
    assert ends.ppv[:, 0].tolist() == [0] * N
    assert torch.allclose(ends.ppv[:, 1], truths().flatten(1).float().mean(dim=1))
    assert (sweep(random_maps(N, SIZE, 0), truths()).sensitivity.diff(dim=1) >= 0).all()


def test_pointing_takes_the_first_of_the_hottest() -> None:
    truth = torch.tensor([[[False, False], [True, True]]])
    assert pointing(torch.tensor([[[0.0, 1.0], [2.0, 0.0]]]), truth).tolist() == [1]
    assert pointing(torch.tensor([[[0.0, 2.0], [1.0, 2.0]]]), truth).tolist() == [0]


def test_pointing_within_allows_a_distance_as_the_crow_flies() -> None:
    heat, truth = torch.zeros(1, 9, 9), torch.zeros(1, 9, 9, dtype=torch.bool)
    heat[0, 1, 2], truth[0, 4, 6] = 1.0, True  # 3 down and 4 along: 5 apart, though 7 by rows and columns
    assert [pointing_within(heat, truth, pixels).item() for pixels in (0, 4.9, 5, 6)] == [0, 0, 1, 1]
    truth[0, 2, 8] = True  # another part of the truth, further off, takes nothing away
    assert pointing_within(heat, truth, 5).item() == 1
    wide = heat.new_zeros(1, 3, 20)
    wide[0, 0, 19] = 1.0  # the next place in reading order, but at the other end of the next row
    edge = torch.zeros(1, 3, 20, dtype=torch.bool)
    edge[0, 1, 0] = True
    assert pointing_within(wide, edge, 18).item() == 0
    assert pointing_within(wide, edge, 19.1).item() == 1


def test_pointing_within_no_distance_is_pointing() -> None:
    maps, truth = random_maps(N, SIZE, 3), truths()
    assert pointing_within(maps, truth, 0).equal(pointing(maps, truth))
    truth[0] = False
    assert pointing_within(maps, truth, 100).isnan().tolist() == [True, False, False, False]


def test_a_centre_gaussian_points_at_what_stands_in_the_middle() -> None:
    truth = torch.zeros(2, 9, 9, dtype=torch.bool)
    truth[0, 4, 4], truth[1, 0, 0] = True, True
    assert pointing(centre_gaussian(2, (9, 9)), truth).tolist() == [1, 0]


def test_energy_by_hand() -> None:
    truth = torch.tensor([[[False, False], [True, True]]]).expand(3, -1, -1)
    heat = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[0, 0], [0, 5]], [[0, 0], [0, 0]]])
    assert energy_share(heat, truth).tolist() == pytest.approx([0.7, 1, 0])
    uniform = energy_share(torch.full((1, 300, 300), 0.9).half(), torch.ones(1, 300, 300, dtype=torch.bool))
    assert uniform.item() == pytest.approx(1)  # 81,000 is infinite in half precision


@pytest.mark.parametrize("wrong", [-0.1, math.nan, math.inf])
def test_energy_wants_heat(wrong: float) -> None:
    heatmaps = random_maps(N, SIZE, 0)
    heatmaps[1, 2, 3] = wrong
    with pytest.raises(ValueError, match="finite heat"):
        energy_share(heatmaps, truths())


@pytest.mark.parametrize("metric", [overlap, sweep, pointing, energy_share])
def test_a_truth_that_does_not_fit_is_refused(metric: object) -> None:
    maps = torch.ones(N, *SIZE, dtype=torch.bool)
    for truth in (truths()[:2], truths().transpose(1, 2), truths().float()):
        with pytest.raises(ValueError, match="against truth"):
            metric(maps, truth)  # type: ignore[operator]


def test_a_map_is_no_finding() -> None:
    with pytest.raises(ValueError, match="must be bool, as from top_share"):
        overlap(random_maps(N, SIZE, 0), truths())


def test_permuting_images_permutes_values() -> None:
    order, maps, truth = torch.tensor([2, 0, 3, 1]), random_maps(N, SIZE, 0), truths()
    swept, again = sweep(maps, truth), sweep(maps[order], truth[order])
    assert isinstance(swept, Overlap)
    assert all(now.equal(then[order]) for now, then in zip(again, swept, strict=True))
    assert energy_share(maps[order], truth[order]).equal(energy_share(maps, truth)[order])


# ── connected parts ──


def flooded(mask: Tensor) -> list[set[tuple[int, int]]]:
    """Connected parts by walking from pixel to pixel."""
    left = {(int(row), int(column)) for row, column in mask.nonzero()}
    parts = []
    while left:
        part, edge = set(), [left.pop()]
        while edge:
            row, column = edge.pop()
            part.add((row, column))
            near = {(row + down, column + across) for down in (-1, 0, 1) for across in (-1, 0, 1)} & left
            left -= near
            edge += near
        parts.append(part)
    return parts


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_the_largest_part_against_a_walk(seed: int, share: float) -> None:
    mask = torch.rand(17, 23, generator=torch.Generator().manual_seed(seed)) < share
    found = {(int(row), int(column)) for row, column in largest_part(mask).nonzero()}
    parts = flooded(mask)
    assert found in parts
    assert len(found) == max(map(len, parts))


def test_the_largest_part_of_nothing_of_all_and_of_a_spiral() -> None:
    nothing = torch.zeros(5, 5, dtype=torch.bool)
    assert torch.equal(largest_part(nothing), nothing)
    assert largest_part(~nothing).all()
    snake = torch.zeros(30, 30, dtype=torch.bool)
    snake[::2] = True
    snake[1::4, -1] = snake[3::4, 0] = True
    assert torch.equal(largest_part(snake), snake)
