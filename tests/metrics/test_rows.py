"""Distinctness, coverage, keypoints and misalignment once more, slow and literal, and planted truth."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.controls import random_maps
from dprotonet.metrics.distinctness import coverage, distinctness, keypoint_coverage
from dprotonet.metrics.keypoints import (
    centroids,
    in_box,
    keypoint_consistency,
    keypoint_stability,
    peaks,
    purity,
    sides_merged,
)
from dprotonet.metrics.misalignment import activation_change, far_exchanged, misalignment

SIZE = (28, 56)  # a box of 72/224 has 9 × 18 pixels, a patch of 32/224 4 × 8
PLACES = list(itertools.product(range(SIZE[0]), range(SIZE[1])))
N, K = 24, 4


def smooth(count: int, seed: int) -> Tensor:
    """Maps with one hill each, and no two pixels alike."""
    coarse = random_maps(count, (4, 6), seed).unsqueeze(1)
    hills = torch.nn.functional.interpolate(coarse, size=SIZE, mode="bicubic").squeeze(1)
    return hills + 1e-4 * random_maps(count, SIZE, seed + 1)


def hottest(heat: Tensor, share: float = 0.1) -> set[tuple[int, int]]:
    order = sorted(PLACES, key=lambda place: -heat[place].item())
    return set(order[: round(share * len(PLACES))])


def peak_of(heat: Tensor) -> tuple[int, int]:
    return max(PLACES, key=lambda place: heat[place].item())  # row, column


def some_keypoints(count: int = N, seed: int = 0) -> Tensor:
    """Anywhere on the image; the last part is hidden in every third one, all parts in every eighth."""
    draws = torch.rand(count, K, 2, generator=torch.Generator().manual_seed(seed)).double()
    keypoints = draws * torch.tensor([SIZE[1], SIZE[0]])
    keypoints[::3, -1] = torch.nan
    keypoints[::8] = torch.nan
    return keypoints


def some_parts(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    parts = torch.zeros(count, *SIZE, dtype=torch.bool)
    for part in parts[:-1]:  # the last one is not to be seen
        row, column = (int(torch.randint(length - 8, (), generator=generator)) for length in SIZE)
        part[row : row + 8, column : column + 7] = True
    return parts


def within(place: tuple[int, int], keypoint: Tensor, sides: tuple[int, int]) -> bool:
    """A keypoint (x, y) in the box of these sides round a place (row, column), as EvalProtoPNet has it."""
    if keypoint.isnan().any():
        return False
    down, across = math.floor(keypoint[1]), math.floor(keypoint[0])
    return abs(down - place[0]) <= sides[0] // 2 and abs(across - place[1]) <= sides[1] // 2


# ── distinctness ─────────────────────────────────────────────────────────────────────────────────────


def test_distinctness_pair_by_pair() -> None:
    rows = smooth(5, 0)
    found, overlaps, apart = distinctness(rows), [], []
    for one, other in itertools.combinations(rows, 2):
        a, b = hottest(one), hottest(other)
        overlaps.append(len(a & b) / len(a | b))
        apart.append(math.dist(peak_of(one), peak_of(other)) > 8)  # 32/224 of 56
    assert found.iou == pytest.approx(sum(overlaps) / 10)
    assert found.apart == pytest.approx(sum(apart) / 10)
    assert 0 < found.iou < 1
    assert 0 < found.apart < 1


def test_equal_rows_are_one_and_disjoint_rows_are_none() -> None:
    rows = smooth(1, 0).expand(5, *SIZE)
    assert distinctness(rows) == (1.0, 0.0)
    apart = torch.zeros(3, 30, 30)
    apart[0, :3], apart[1, 10:13], apart[2, 20:23] = 1, 1, 1
    assert distinctness(apart) == (0.0, 1.0)
    assert all(math.isnan(value) for value in distinctness(rows[:1]))


# ── coverage ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(4))
def test_coverage_part_by_part(seed: int) -> None:
    rows, parts = smooth(5, 10 * seed), some_parts(9, seed)
    named, covered = set(), set()
    for heat, number in itertools.product(rows, range(len(parts))):
        pixels = {place for place in PLACES if parts[number][place]}
        if peak_of(heat) in pixels:
            named.add(number)
        if pixels and len(pixels & hottest(heat)) >= min(len(pixels), len(hottest(heat))) / 2:
            covered.add(number)
    assert coverage(rows, parts) == (len(named), len(covered), 8)


def test_rows_on_parts_of_their_own_cover_all_and_rows_on_one_cover_one() -> None:
    parts = torch.zeros(5, 50, 50, dtype=torch.bool)
    for number, part in enumerate(parts):
        part[10 * number : 10 * number + 5, :50] = True  # a tenth of the image
    assert coverage(parts.float(), parts) == (5, 5, 5)
    assert coverage(parts[:1].float().expand(5, 50, 50), parts) == (1, 1, 5)
    assert math.isnan(coverage(parts.float(), torch.zeros_like(parts)).named)
    with pytest.raises(ValueError, match="bool"):
        coverage(parts.float(), parts.float())


@pytest.mark.parametrize("image", range(N))
def test_keypoint_coverage_by_boxes(image: int) -> None:
    rows, keypoints = smooth(3, 3 * image), some_keypoints()[image]
    named, covered = set(), set()
    for row, column in map(peak_of, rows):
        inside = [number for number in range(K) if within((row, column), keypoints[number], (9, 18))]
        covered |= set(inside)
        gaps = {math.dist((column + 0.5, row + 0.5), keypoints[i].tolist()): i for i in inside}
        named |= {gaps[min(gaps)]} if gaps else set()
    found = keypoint_coverage(peaks(rows), keypoints, size=SIZE)
    visible = int((~keypoints.isnan().any(dim=1)).sum())
    if visible:
        assert found == (len(named), len(covered), visible)
    else:
        assert math.isnan(found.named)


# ── keypoints ────────────────────────────────────────────────────────────────────────────────────────


def test_peaks_are_the_first_hottest_pixels() -> None:
    maps = smooth(6, 5)
    assert [(y, x) for x, y in peaks(maps).tolist()] == [peak_of(heat) for heat in maps]
    assert peaks(torch.ones(1, 3, 4)).tolist() == [[0, 0]]


def test_the_box_of_huang_at_224_pixels_reaches_36_pixels_and_a_patch_16() -> None:
    size, point = (224, 224), torch.tensor([[100, 60]])
    for reach, options in ((36, {}), (16, {"box": 32 / 224})):
        for offset, expected in ((reach, True), (reach + 1, False), (-reach, True), (-reach - 1, False)):
            across, down = torch.tensor([[[100.9 + offset, 60.2]]]), torch.tensor([[[100.9, 60.2 + offset]]])
            assert in_box(point, across, size=size, **options).item() is expected
            assert in_box(point, down, size=size, **options).item() is expected


def test_consistency_prototype_by_prototype() -> None:
    keypoints, prototype = some_keypoints(), torch.arange(N) % 3
    points = peaks(smooth(N, 7))
    aimed = keypoints[:, 1].nan_to_num(0).floor().long()
    points = torch.where((prototype == 1)[:, None], aimed, points)  # one of them looks at the second part
    found = keypoint_consistency(points, keypoints, prototype, size=SIZE)
    for number in range(3):
        rates = []
        for part in range(K):
            own = [i for i in range(N) if prototype[i] == number and not keypoints[i, part].isnan().any()]
            hits = [within((int(points[i, 1]), int(points[i, 0])), keypoints[i, part], (9, 18)) for i in own]
            rates += [sum(hits) / len(own)] if own else []
        assert found.share[number].item() == pytest.approx(max(rates))
        assert found.consistent[number].item() == (max(rates) >= 0.8)
    assert (found.part[1], found.share[1], found.consistent[1]) == (1, 1.0, True)
    assert not found.consistent.all()


def test_stability_is_the_same_set_of_keypoints() -> None:
    keypoints, before = some_keypoints(), peaks(smooth(N, 1))
    after = torch.where(torch.arange(N)[:, None] % 2 == 0, before + 1, peaks(smooth(N, 2)))
    found = keypoint_stability(before, after, keypoints, size=SIZE)
    for image in range(N):
        sets = [
            {k for k in range(K) if within((int(y), int(x)), keypoints[image, k], (9, 18))}
            for x, y in (before[image], after[image])
        ]
        if keypoints[image].isnan().all():
            assert found[image].isnan()
        else:
            assert found[image].item() == (sets[0] == sets[1])
    assert {0.0, 1.0} <= set(found.tolist())
    nowhere = torch.tensor([[0, 0]])  # covers nothing before and after: stable, as for Huang et al.
    assert keypoint_stability(nowhere, nowhere, torch.tensor([[[50.0, 25.0]]]), size=SIZE).item() == 1


def test_purity_takes_left_and_right_for_one() -> None:
    names = ["back", "left eye", "right eye", "left wing"]
    assert sides_merged(names) == [0, 1, 1, 3]
    points = torch.full((10, 2), 20)
    keypoints = torch.full((10, 4, 2), 55.0)
    keypoints[:6, 1], keypoints[6:9, 2] = 20.5, 22.5  # nine of ten patches have an eye
    keypoints[9, 1:3] = torch.nan  # and the tenth image shows none
    prototype = torch.zeros(10, dtype=torch.long)
    apart = purity(points, keypoints, prototype, size=SIZE)
    assert apart.share.item() == pytest.approx(6 / 9)
    merged = purity(points, keypoints, prototype, size=SIZE, same=sides_merged(names))
    assert (merged.share.item(), merged.part.item(), merged.seen.item()) == (1.0, 1, 9)
    keypoints[0, 1] = 26.0  # outside of 4 × 8
    assert purity(points, keypoints, prototype, size=SIZE, same=[0, 1, 1, 3]).share.item() == 8 / 9


def test_centroids_of_masks() -> None:
    parts = some_parts(5)
    found = centroids(parts.unsqueeze(0))[0]
    for part, middle in zip(parts, found, strict=True):
        pixels = [place for place in PLACES if part[place]]
        if pixels:
            rows, columns = ([place[axis] + 0.5 for place in pixels] for axis in (0, 1))
            assert middle.tolist() == pytest.approx([sum(columns) / len(pixels), sum(rows) / len(pixels)])
        else:
            assert middle.isnan().all()
    with pytest.raises(ValueError, match="bool"):
        centroids(parts.float().unsqueeze(0))


def test_maps_that_sit_on_a_part_are_consistent_and_pure() -> None:
    parts = torch.stack([some_parts(4, seed) for seed in range(10)])
    keypoints, prototype = centroids(parts), torch.zeros(10, dtype=torch.long)
    on = keypoints[:, 2].floor().long()
    assert keypoint_consistency(on, keypoints, prototype, size=SIZE).share.item() == 1
    assert purity(on, keypoints, prototype, size=SIZE).share.item() == 1
    assert keypoint_stability(on, on, keypoints, size=SIZE).tolist() == [1] * 10


def test_keypoints_that_do_not_fit_are_refused() -> None:
    points, keypoints = torch.zeros(3, 2), torch.zeros(3, 4, 2)
    for wrong in (keypoints[:2], keypoints[..., 0], keypoints[:, :0], torch.zeros(3, 4, 3)):
        with pytest.raises(ValueError, match="against keypoints"):
            in_box(points, wrong, size=SIZE)
    with pytest.raises(ValueError, match="prototype has shape"):
        keypoint_consistency(points, keypoints, torch.zeros(2), size=SIZE)


# ── misalignment ─────────────────────────────────────────────────────────────────────────────────────


def test_only_what_is_far_is_exchanged() -> None:
    images, others = torch.rand(3, 2, *SIZE), torch.rand(3, 2, *SIZE)
    points = torch.tensor([[0, 0], [20, 13], [55, 27]])
    found = far_exchanged(images, others, points)
    for image, (row, column) in itertools.product(range(3), PLACES):
        x, y = points[image].tolist()
        near = abs(row - y) <= 4 and abs(column - x) <= 9
        expected = images if near else others
        assert torch.equal(found[image, :, row, column], expected[image, :, row, column])
    with pytest.raises(ValueError, match="wanted"):
        far_exchanged(images, others[:2], points)


def test_misalignment_map_by_map() -> None:
    before, after = smooth(4, 20), smooth(4, 30)
    after[0] = before[0]
    found = misalignment(before, after)
    for number in range(4):
        a, b = hottest(before[number]), hottest(after[number])
        assert found.location[number].item() == pytest.approx(1 - len(a & b) / len(a | b))
        gap = math.dist(peak_of(before[number]), peak_of(after[number]))
        assert found.moved[number].item() == pytest.approx(gap)
    assert (found.location[0].item(), found.moved[0].item()) == (0, 0)


def test_the_change_of_an_activation() -> None:
    before, after = torch.tensor([2.0, 2.0, 2.0, 0.0, -1.0]), torch.tensor([1.0, 3.0, -4.0, 1.0, 1.0])
    assert activation_change(before, after).nan_to_num(9).tolist() == [0.5, -0.5, 1.0, 9, 9]
