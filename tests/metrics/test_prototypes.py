"""Measures of prototypes once more, slow and literal, and by hand where nothing is defined."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.controls import random_maps
from dprotonet.metrics.prototypes import (
    Consistency,
    covered_parts,
    duplicates,
    explanation_size,
    stability,
    twins,
    usual_part,
)

N, PARTS, SIZE = 6, 3, (6, 7)
PLACES = list(itertools.product(range(SIZE[0]), range(SIZE[1])))


def boxes(n: int = N, seed: int = 0) -> Tensor:
    """A box for every part of every image; the last part is missing in every third image."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.zeros(n, PARTS, *SIZE, dtype=torch.bool)
    for image, part in itertools.product(range(n), range(PARTS)):
        row, column = (int(torch.randint(length - 2, (), generator=generator)) for length in SIZE)
        parts[image, part, row : row + 2, column : column + 3] = True
    parts[::3, -1] = False
    return parts


def hottest_first(heat: Tensor) -> list[tuple[int, int]]:
    return sorted(PLACES, key=lambda place: (-heat[place].item(), PLACES.index(place)))


# ── size ─────────────────────────────────────────────────────────────────────────────────────────────


def literal_size(heat: Tensor, most: float) -> tuple[float, float]:
    values = [heat[place].item() for place in hottest_first(heat)]
    needed = next(k for k in range(1, len(values) + 1) if math.fsum(values[:k]) >= most * math.fsum(values))
    return needed / len(values), sum(value > values[0] / 2 for value in values) / len(values)


@pytest.mark.parametrize("most", [0.5, 0.9])
def test_size_of_explanations(most: float) -> None:
    heat = random_maps(N, SIZE, 0) ** 4
    found = explanation_size(heat, most=most)
    for image in range(N):
        expected = literal_size(heat[image].double(), most)
        assert (found.for_most[image].item(), found.above_half[image].item()) == pytest.approx(expected)


def test_a_flat_map_needs_nine_tenths_and_rounding_does_not_ask_for_more() -> None:
    for size in ((10, 10), (7, 100), (30, 30)):
        found = explanation_size(torch.full((1, *size), 0.1))
        assert found.for_most.item() == pytest.approx(0.9)
        assert found.above_half.item() == 1


def test_one_pixel_is_the_smallest_explanation_and_none_is_unknown() -> None:
    heat = torch.zeros(2, *SIZE)
    heat[0, 2, 3] = 0.01
    found = explanation_size(heat)
    assert found.for_most[0] == found.above_half[0] == pytest.approx(1 / len(PLACES))
    assert found.for_most[1].isnan()
    assert found.above_half[1].isnan()


def test_size_wants_heat() -> None:
    with pytest.raises(ValueError, match="explanation size needs finite heat"):
        explanation_size(-torch.ones(1, 2, 2))
    with pytest.raises(ValueError, match=r"\(N, H, W\)"):
        explanation_size(torch.ones(2, 2))


# ── duplicates ───────────────────────────────────────────────────────────────────────────────────────


def test_prototypes_of_one_class_that_coincide_are_grouped_in_chains() -> None:
    vectors = torch.tensor([[0.0, 0], [9, 9], [0, 0], [0, 1], [5, 5], [9, 9], [0, 2.1], [0, 0]])
    classes = torch.tensor([0, 1, 0, 0, 1, 1, 0, 1])
    assert duplicates(vectors, classes, tolerance=0) == [[0, 2], [1, 5]]
    assert duplicates(vectors, classes, tolerance=1) == [[0, 2, 3], [1, 5]]
    assert duplicates(vectors, classes, tolerance=1.2) == [[0, 2, 3, 6], [1, 5]]
    assert duplicates(vectors[3:5], classes[3:5], tolerance=99) == []


def test_equal_prototypes_far_from_zero_coincide_and_others_do_not() -> None:
    vectors = 1000 + torch.rand(4, 128, generator=torch.Generator().manual_seed(0))
    vectors[3] = vectors[1]
    vectors[2] = vectors[0]
    vectors[2, 5] += 1e-3
    assert duplicates(vectors, torch.zeros(4, dtype=torch.long), tolerance=1e-5) == [[1, 3]]


def literal_groups(vectors: Tensor, classes: list[int], tolerance: float) -> list[list[int]]:
    group = list(range(len(vectors)))
    for _ in vectors:
        for i, j in itertools.combinations(range(len(vectors)), 2):
            if classes[i] == classes[j] and math.dist(vectors[i].tolist(), vectors[j].tolist()) <= tolerance:
                group[i] = group[j] = min(group[i], group[j])
    groups = [[i for i, own in enumerate(group) if own == first] for first in sorted(set(group))]
    return [members for members in groups if len(members) > 1]


@pytest.mark.parametrize("tolerance", [0.05, 0.15, 0.3])
def test_groups_are_those_of_a_literal_search(tolerance: float) -> None:
    vectors = torch.rand(24, 2, generator=torch.Generator().manual_seed(1)).double()
    classes = torch.arange(24) % 2
    expected = literal_groups(vectors, classes.tolist(), tolerance)
    assert duplicates(vectors, classes, tolerance=tolerance) == expected
    assert expected


def test_twins_by_number_within_a_share_of_the_mean_norm() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 5.0], [3.0, 4.004], [3.0, 4.006], [0.0, 5.0]])  # mean norm 5
    classes = torch.tensor([0, 0, 0, 0, 1])
    assert twins(vectors[[0, 1, 2, 4]], classes[[0, 1, 2, 4]]) == {0: (2,), 2: (0,)}
    assert twins(vectors[[0, 1, 3, 4]], classes[[0, 1, 3, 4]]) == {}
    assert twins(vectors, classes) == {0: (2, 3), 2: (0, 3), 3: (0, 2)}  # a chain


def test_duplicates_want_vectors_with_classes() -> None:
    with pytest.raises(ValueError, match=r"\(P, D\) and \(P,\)"):
        duplicates(torch.zeros(3, 2), torch.zeros(2), tolerance=0)
    with pytest.raises(ValueError, match="tolerance is -1"):
        duplicates(torch.zeros(3, 2), torch.zeros(3), tolerance=-1)


# ── stability ────────────────────────────────────────────────────────────────────────────────────────


def literal_stability(before: Tensor, after: Tensor, parts: Tensor) -> float:
    first, second = (
        {part for part in range(PARTS) if parts[part][hottest_first(heat)[0]]} for heat in (before, after)
    )
    return float(first == second) if first else math.nan


def test_stability_image_by_image() -> None:
    count = 60
    parts, before = boxes(count), random_maps(count, SIZE, 0)
    after = torch.where(torch.arange(count)[:, None, None] % 2 == 0, before, random_maps(count, SIZE, 1))
    expected = [literal_stability(*triple) for triple in zip(before, after, parts, strict=True)]
    found = stability(before, after, parts)
    assert torch.equal(found.nan_to_num(-1), torch.tensor(expected).double().nan_to_num(-1))
    assert {0.0, 1.0} < {value if value == value else -1 for value in expected}


def test_a_peak_on_nothing_is_undefined_and_one_that_leaves_the_object_unstable() -> None:
    parts = torch.zeros(1, 2, *SIZE, dtype=torch.bool)
    parts[0, 0, 0, 0] = True
    on, off = torch.zeros(1, *SIZE), torch.zeros(1, *SIZE)
    on[0, 0, 0], off[0, 3, 3] = 1, 1
    assert stability(on, on, parts).tolist() == [1]
    assert stability(on, off, parts).tolist() == [0]
    assert stability(off, on, parts).isnan().all()
    assert stability(off, off, parts).isnan().all()


# ── consistency ──────────────────────────────────────────────────────────────────────────────────────


def consistency(
    heatmaps: Tensor, parts: Tensor, prototype: Tensor, *, share: float = 0.1, **rest: Any
) -> Consistency:
    """As `quality` puts the two steps together."""
    visible = parts.flatten(2).any(dim=2)
    return usual_part(covered_parts(heatmaps, parts, share=share), visible, prototype, **rest)


def literal_consistency(heatmaps: Tensor, parts: Tensor, share: float) -> tuple[int, float, int]:
    """The best part of one prototype: its number, share of the images that show it, and their count."""
    best = (-1, math.nan, 0)
    size = max(1, round(share * len(PLACES)))
    for part in range(PARTS):
        hits = seen = 0
        for heat, own in zip(heatmaps, parts[:, part], strict=True):
            pixels = {place for place in PLACES if own[place]}
            if not pixels:
                continue
            seen += 1
            hits += len(pixels & set(hottest_first(heat)[:size])) >= min(size, len(pixels)) / 2
        if seen and not hits / seen <= best[1]:
            best = (part, hits / seen, seen)
    return best


@pytest.mark.parametrize("share", [0.05, 0.15, 0.5])
def test_consistency_prototype_by_prototype(share: float) -> None:
    count, prototype = 24, torch.arange(24) % 4
    parts = boxes(count)
    aim = (torch.arange(count) % 4 < 2)[:, None, None] * parts[:, 1]  # two of them look at the second part
    heatmaps = random_maps(count, SIZE, 3) + aim
    found = consistency(heatmaps, parts, prototype, share=share)
    for number in range(4):
        own = prototype == number
        part, rate, seen = literal_consistency(heatmaps[own], parts[own], share)
        assert (found.part[number], found.seen[number]) == (part, seen)
        assert found.share[number].item() == pytest.approx(rate)
        assert found.consistent[number] == (rate >= 0.8)
    assert found.consistent[:2].all()


def test_a_part_that_is_not_shown_is_no_miss_and_a_prototype_without_images_unknown() -> None:
    parts = torch.zeros(5, 2, *SIZE, dtype=torch.bool)
    parts[:, 0, 0, :2] = True
    parts[:4, 1, 4, :2] = True
    heat = torch.zeros(5, *SIZE)
    heat[:, 4, :2] = 1
    found = consistency(heat, parts, torch.tensor([1, 1, 1, 1, 1]), share=2 / len(PLACES), prototypes=3)
    assert found.part.tolist() == [-1, 1, -1]
    assert found.seen.tolist() == [0, 4, 0]
    assert found.share[1] == 1
    assert found.share.isnan().tolist() == [True, False, True]
    assert found.consistent.tolist() == [False, True, False]
    hidden = consistency(heat, torch.zeros_like(parts), torch.zeros(5, dtype=torch.long))
    assert hidden.part.tolist() == [-1]


def test_the_threshold_decides() -> None:
    parts = torch.zeros(4, 1, *SIZE, dtype=torch.bool)
    parts[:, 0, 0, 0] = True
    heat = torch.zeros(4, *SIZE)
    heat[:3, 0, 0], heat[3, 5, 5] = 1, 1
    numbers = torch.zeros(4, dtype=torch.long)
    assert consistency(heat, parts, numbers, share=0.02).consistent.tolist() == [False]
    assert consistency(heat, parts, numbers, share=0.02, threshold=0.75).consistent.tolist() == [True]


def test_parts_that_do_not_fit_are_refused() -> None:
    heat, numbers = random_maps(N, SIZE, 0), torch.zeros(N, dtype=torch.long)
    for parts in (boxes()[:2], boxes().float(), boxes()[:, 0], boxes().transpose(2, 3)):
        with pytest.raises(ValueError, match="against parts"):
            consistency(heat, parts, numbers)
        with pytest.raises(ValueError, match="against parts"):
            stability(heat, heat, parts)
    with pytest.raises(ValueError, match="prototype has shape"):
        consistency(heat, boxes(), numbers[:2])
    with pytest.raises(ValueError, match="share is 10"):
        consistency(heat, boxes(), numbers, share=10)
