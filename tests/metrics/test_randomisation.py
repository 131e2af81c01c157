"""Rank correlation and structural similarity, literal and against scipy, and what has none."""

import itertools
import math

import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.stats import spearmanr
from torch import Tensor

from dprotonet.metrics.randomisation import rank_correlation, structural_similarity

N, SIZE = 3, (14, 13)


def maps(seed: int, *, levels: int | None = None) -> Tensor:
    values = torch.rand(N, *SIZE, generator=torch.Generator().manual_seed(seed))
    return values if levels is None else (values * levels).floor() / levels


def literal_ranks(values: list[float]) -> list[float]:
    """One more than the values below, and half of the others that are equal."""
    return [
        1 + sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def literal_correlation(first: list[float], second: list[float]) -> float:
    a, b = literal_ranks(first), literal_ranks(second)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    product = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))


@pytest.mark.parametrize("levels", [None, 3], ids=["untied", "tied"])
def test_rank_correlation_is_spearmans(levels: int | None) -> None:
    first, second = maps(0, levels=levels), (maps(0) + maps(1, levels=levels)) / 2
    found = rank_correlation(first, second)
    assert found.dtype == torch.float64
    for image in range(N):
        pair = first[image].flatten().tolist(), second[image].flatten().tolist()
        assert found[image].item() == pytest.approx(literal_correlation(*pair), abs=1e-12)
        assert found[image].item() == pytest.approx(spearmanr(*pair).statistic, abs=1e-12)


def test_rank_correlation_sees_the_order_only() -> None:
    assert rank_correlation(maps(0), maps(0) ** 3 - 5).tolist() == pytest.approx([1] * N)
    assert rank_correlation(maps(0), -maps(0)).tolist() == pytest.approx([-1] * N)
    assert rank_correlation(maps(0), maps(1)).abs().max() < 0.4


def test_a_flat_map_has_no_order() -> None:
    flat = maps(0)
    flat[1] = 0.5
    assert rank_correlation(flat, maps(1)).isnan().tolist() == [False, True, False]
    assert rank_correlation(maps(1), flat).isnan().tolist() == [False, True, False]


def literal_similarity(first: Tensor, second: Tensor) -> float:
    """The definition, window by window; the weights are scipy's answer to a point."""
    point = torch.zeros(11, 11, dtype=torch.double)
    point[5, 5] = 1
    weights = torch.from_numpy(gaussian_filter(point.numpy(), 1.5, truncate=5 / 1.5, mode="constant"))
    values = []
    for row, column in itertools.product(range(SIZE[0] - 10), range(SIZE[1] - 10)):
        a = first[row : row + 11, column : column + 11].double()
        b = second[row : row + 11, column : column + 11].double()
        mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
        spread_a, spread_b = (weights * (a - mean_a) ** 2).sum(), (weights * (b - mean_b) ** 2).sum()
        common = (weights * (a - mean_a) * (b - mean_b)).sum()
        above = (2 * mean_a * mean_b + 0.01**2) * (2 * common + 0.03**2)
        values.append((above / (mean_a**2 + mean_b**2 + 0.01**2) / (spread_a + spread_b + 0.03**2)).item())
    return sum(values) / len(values)


def test_structural_similarity_window_by_window() -> None:
    first, second = maps(0), 0.5 * maps(0) + 0.5 * maps(1)
    expected = [literal_similarity(a, b) for a, b in zip(first, second, strict=True)]
    assert structural_similarity(first, second).tolist() == pytest.approx(expected, abs=1e-10)
    assert structural_similarity(first, first).tolist() == pytest.approx([1] * N)
    assert (structural_similarity(first, maps(1)) < structural_similarity(first, second)).all()


def test_what_cannot_be_compared_is_refused() -> None:
    for measure in (rank_correlation, structural_similarity):
        with pytest.raises(ValueError, match="must be equal"):
            measure(maps(0), maps(0)[:2])
        with pytest.raises(ValueError, match=r"\(N, H, W\)"):
            measure(maps(0)[0], maps(0)[0])
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        structural_similarity(maps(0), 2 * maps(0))
    with pytest.raises(ValueError, match="window"):
        structural_similarity(maps(0)[:, :10], maps(0)[:, :10])
