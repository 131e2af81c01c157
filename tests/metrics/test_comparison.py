"""The paired bootstrap finds what is there, not what is not, and says how sure it is."""

import math

import pytest
import torch
from torch import Tensor

from dprotonet.metrics import comparison
from dprotonet.metrics.comparison import mean_interval, paired_bootstrap, statistic_interval


def normal(n: int, seed: int) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def test_a_small_steady_difference_is_seen_although_the_images_differ_much() -> None:
    hard = 10 * normal(60, 0)
    result = paired_bootstrap(hard + 0.3 + 0.2 * normal(60, 1), hard)
    assert result.low < result.difference < result.high
    assert result.low > 0
    assert result.high < 0.5
    assert result.p < 0.001


def test_the_interval_is_that_of_the_mean() -> None:
    values = normal(400, 2)
    result = paired_bootstrap(values, torch.zeros(400))
    error = values.std().item() / math.sqrt(400)
    assert result.difference == pytest.approx(values.mean().item())
    assert result.low == pytest.approx(result.difference - 1.96 * error, abs=0.1 * error)
    assert result.high == pytest.approx(result.difference + 1.96 * error, abs=0.1 * error)


def test_p_is_below_five_percent_just_when_the_interval_leaves_zero_out() -> None:
    results = [paired_bootstrap(normal(30, seed) + 0.35, torch.zeros(30)) for seed in range(30)]
    outside = [result.low > 0 or result.high < 0 for result in results]
    assert [result.p < 0.05 for result in results] == outside
    assert 0 < sum(outside) < 30


def test_without_a_difference_it_is_rarely_sure() -> None:
    sure = [paired_bootstrap(normal(50, s), normal(50, s + 500), resamples=500).p < 0.05 for s in range(200)]
    assert 2 <= sum(sure) <= 24  # 10 expected


def test_swapping_the_sides_mirrors_the_answer() -> None:
    ours, theirs = normal(40, 0) + 0.2, normal(40, 1)
    there, back = paired_bootstrap(ours, theirs), paired_bootstrap(theirs, ours)
    assert back.difference == pytest.approx(-there.difference)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))
    assert back.p == pytest.approx(there.p)


def test_equal_sides_are_not_different() -> None:
    values = normal(20, 0)
    assert paired_bootstrap(values, values) == (0, 0, 0, 1)


def test_p_is_never_zero() -> None:
    assert paired_bootstrap(torch.ones(9), torch.zeros(9), resamples=99).p == pytest.approx(0.02)


def test_pairs_with_nan_are_left_out() -> None:
    ours, theirs = normal(30, 0), normal(30, 1)
    broken, holes = ours.clone(), theirs.clone()
    broken[3], holes[[5, 6]] = torch.nan, torch.nan
    rest = [i for i in range(30) if i not in (3, 5, 6)]
    assert paired_bootstrap(broken, holes) == paired_bootstrap(ours[rest], theirs[rest])


def test_too_few_pairs_leave_it_unknown() -> None:
    hole = torch.tensor([torch.nan, 2.0])
    single = paired_bootstrap(torch.tensor([1.0, 5.0]), hole)
    assert single.difference == 3
    assert all(math.isnan(value) for value in single[1:])
    assert all(math.isnan(value) for value in paired_bootstrap(hole[:1], hole[:1]))


def test_the_seed_decides() -> None:
    ours, theirs = normal(30, 0), normal(30, 1)
    assert paired_bootstrap(ours, theirs, seed=1) == paired_bootstrap(ours, theirs, seed=1)
    assert paired_bootstrap(ours, theirs, seed=1).low != paired_bootstrap(ours, theirs, seed=2).low


def test_blocks_fill_every_resample(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = normal(30, 0), normal(30, 1)
    whole = paired_bootstrap(ours, theirs)
    monkeypatch.setattr(comparison, "_BLOCK_ELEMENTS", 100)
    assert paired_bootstrap(ours, theirs) == pytest.approx(whole, abs=0.03)
    assert paired_bootstrap(torch.ones(30), torch.zeros(30), resamples=500).p == pytest.approx(2 / 501)


def test_the_interval_of_a_statistic_is_that_of_the_mean_where_it_is_one() -> None:
    values = normal(200, 3)
    found = statistic_interval(lambda some: values[some].mean().item(), torch.zeros(200), resamples=2_000)
    expected = mean_interval(values)
    assert found.mean == pytest.approx(expected.mean)
    assert found.low == pytest.approx(expected.low, abs=0.02)
    assert found.high == pytest.approx(expected.high, abs=0.02)


def test_groups_are_resampled_each_by_itself() -> None:
    groups = torch.tensor([0, 0, 0, 1, 1, 2])
    counts = []

    def count(some: Tensor) -> float:
        counts.append(torch.bincount(groups[some], minlength=3).tolist())
        return float(some.double().mean())

    statistic_interval(count, groups, resamples=20)
    assert counts == [[3, 2, 1]] * 21
    assert math.isnan(statistic_interval(lambda _: 1.0, groups[:1]).low)
    assert math.isnan(statistic_interval(lambda _: math.nan, groups).high)


def test_values_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        paired_bootstrap(torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match="image by image"):
        paired_bootstrap(torch.zeros(3, 1), torch.zeros(3, 1))
    with pytest.raises(ValueError, match="resamples is 0"):
        paired_bootstrap(torch.zeros(3), torch.zeros(3), resamples=0)
