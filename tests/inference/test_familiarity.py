"""The threshold from which on an image is strange: the quantile's arithmetic, and its promise kept."""

import math

import pytest
import torch

from dprotonet.errors import UserError
from dprotonet.inference.familiarity import (
    Joined,
    class_strangeness,
    conformal_threshold,
    joined_limits,
    log_usual,
    rank_of,
    strangeness,
)


def test_strangeness_is_the_distance_of_the_nearest_prototype() -> None:
    distances = torch.rand(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for row, value in zip(distances, strangeness(distances), strict=True):
        assert float(value) == pytest.approx(min(math.sqrt(float(entry)) for entry in row), abs=1e-12)


def test_class_strangeness_is_the_mean_of_the_nearest_class_that_has_prototypes() -> None:
    distances = torch.tensor([[1.0, 9.0, 4.0, 4.0, 2.0], [0.0, 16.0, 1.0, 3.0, 8.0]])
    owner = torch.tensor([0, 0, 1, 1, 3])  # pruning left class 2 without any
    found = class_strangeness(distances, owner)
    assert found.tolist() == pytest.approx([math.sqrt(2), math.sqrt(2)])


@pytest.mark.parametrize(("images", "share"), [(19, 0.05), (20, 0.05), (99, 0.05), (180, 0.1), (7, 0.5)])
def test_the_rank_is_the_smallest_that_keeps_the_promise(images: int, share: float) -> None:
    """A new image is equally likely to take each of the images + 1 places."""
    rank = rank_of(images, share)
    above = (images + 1 - rank) / (images + 1)
    assert above <= share + 1e-12
    assert (images + 1 - (rank - 1)) / (images + 1) > share


def test_too_few_images_give_the_largest() -> None:
    values = torch.tensor([3.0, 1.0, 2.0])
    assert conformal_threshold(values, 0.05) == 3.0
    assert conformal_threshold(values, 0.5) == 2.0


def test_about_the_share_of_new_images_is_above() -> None:
    draws = torch.rand(2000, 60, generator=torch.Generator().manual_seed(1)) ** 3
    above = [float(row[-1]) > conformal_threshold(row[:-1], 0.05) for row in draws]
    assert sum(above) / len(above) == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        conformal_threshold(torch.ones(3), share)


@pytest.mark.parametrize("values", [torch.empty(0), torch.tensor([1.0, math.nan])])
def test_values_that_give_no_threshold(values: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="finite values"):
        conformal_threshold(values)


# ── several distances together ──


def skewed(count: int, kinds: int, seed: int) -> torch.Tensor:
    """Known distances: of each kind of another size, their logarithms of another spread."""
    random = torch.Generator().manual_seed(seed)
    spread = torch.linspace(0.1, 0.4, kinds)
    return (torch.randn(count, kinds, generator=random) * spread + torch.arange(kinds)).exp()


def test_what_is_usual_is_mean_and_deviation_of_the_logarithms() -> None:
    distances = skewed(50, 3, seed=0)
    usual = log_usual(distances)
    for kind in range(3):
        logs = [math.log(float(value)) for value in distances[:, kind]]
        mean = sum(logs) / 50
        deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / 50)
        assert float(usual.mean[kind]) == pytest.approx(mean, rel=1e-6, abs=1e-6)
        assert float(usual.deviation[kind]) == pytest.approx(deviation, rel=1e-6)
        assert float(usual.at(2.0)[kind]) == pytest.approx(math.exp(mean + 2 * deviation), rel=1e-6)
    assert usual.standard(distances).mean(dim=0).tolist() == pytest.approx([0, 0, 0], abs=1e-9)


def test_the_limit_of_two_is_where_the_mean_of_both_is_unusual() -> None:
    """Against literal arithmetic: both in deviations, their mean in its own, one limit for all."""
    first, levels = skewed(200, 1, seed=1)[:, 0], skewed(200, 2, seed=2)
    found = joined_limits(first, levels, 0.05)

    def deviations(values: torch.Tensor) -> torch.Tensor:
        logs = values.double().log()
        return (logs - logs.mean()) / logs.std(correction=0)

    both = deviations(first) + deviations(levels[:, 1])
    joint = both / both.std(correction=0)
    score = torch.stack([deviations(levels[:, 0]), joint, deviations(first)]).amax(dim=0)
    beyond = score > conformal_threshold(score, 0.05)
    last = found.joined(first / found.first, levels[:, 1] / found.levels[1])
    told = torch.stack([levels[:, 0] / found.levels[0], last, first / found.first]).amax(dim=0) > 1 + 1e-7
    assert told.tolist() == beyond.tolist()
    assert 0 < int(told.sum()) <= 10


def test_what_is_a_little_strange_in_both_is_strange_though_in_neither_alone() -> None:
    first, levels = skewed(400, 1, seed=1)[:, 0], skewed(400, 2, seed=2)
    found = joined_limits(first, levels, 0.05)
    usual = log_usual(torch.stack([first, levels[:, 1]], dim=1))
    raised = usual.at(1.9)
    ratios = raised / torch.tensor([found.first, float(found.levels[1])])
    assert (ratios < 1).all()
    assert float(found.joined(*ratios)) > 1
    typical = usual.at(0.0) / torch.tensor([found.first, float(found.levels[1])])
    assert float(found.joined(ratios[0], typical[1])) < 1
    alone = usual.at(6.0) / torch.tensor([found.first, float(found.levels[1])])
    assert float(found.joined(alone[0], typical[1])) > 1
    assert float(found.joined(typical[0], alone[1])) > 1


def test_joined_is_the_weighted_geometric_mean() -> None:
    found = Joined(0.25, 0.5)(torch.tensor([16.0, 0.0]), torch.tensor([1.0, 3.0]))
    assert found.tolist() == pytest.approx([4.0, 0.0])
