"""Rank correlation, literal and against scipy, and what has none."""

import math

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from dprotonet.metrics.randomisation import rank_correlation

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


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="must be equal"):
        rank_correlation(maps(0), maps(0)[:2])
    with pytest.raises(ValueError, match=r"\(N, H, W\)"):
        rank_correlation(maps(0)[0], maps(0)[0])
