"""How far features lie outside of known ones: against literal arithmetic, and with planted strangers."""

import pytest
import torch
from torch import Tensor

from dprotonet.inference.feature_spread import (
    KEPT,
    FeatureSpread,
    LevelSpread,
    cross_fitted,
    shrinkage_of,
)


def known(count: int, dimension: int, seed: int = 0) -> Tensor:
    """Correlated features."""
    random = torch.Generator().manual_seed(seed)
    mixing = torch.randn(
        dimension, dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(9)
    )
    return torch.randn(count, dimension, dtype=torch.float64, generator=random) @ mixing + 5


def literal_shrinkage(centred: Tensor) -> tuple[float, float]:
    """Ledoit and Wolf's estimate, image by image."""
    count, dimension = centred.shape
    covariance = centred.T @ centred / count
    average = float(covariance.trace() / dimension)
    apart = float((covariance - average * torch.eye(dimension, dtype=torch.float64)).square().sum())
    error = sum(float((torch.outer(row, row) - covariance).square().sum()) for row in centred) / count**2
    return min(error / apart, 1.0), average


@pytest.mark.parametrize(("count", "dimension"), [(12, 30), (200, 8)])
def test_shrinkage_is_that_of_ledoit_and_wolf(count: int, dimension: int) -> None:
    features = known(count, dimension)
    centred = features - features.mean(dim=0)
    shrinkage, average = shrinkage_of(centred)
    wanted, mean = literal_shrinkage(centred)
    assert float(shrinkage) == pytest.approx(wanted, rel=1e-6)
    assert float(average) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize(("count", "dimension"), [(20, 40), (300, 12)])
def test_the_distance_is_mahalanobis_with_the_shrunken_covariance(count: int, dimension: int) -> None:
    """Fewer directions than are kept: nothing is left out, so it has to agree with the inverse matrix."""
    assert min(count, dimension) < KEPT
    features = known(count, dimension)
    deviation = features.var(dim=0, correction=0).sqrt()
    alike = (features - features.mean(dim=0)) / deviation
    shrinkage, average = literal_shrinkage(alike)
    covariance = alike.T @ alike / count
    shrunken = (1 - shrinkage) * covariance + shrinkage * average * torch.eye(dimension, dtype=torch.float64)
    asked = known(6, dimension, seed=1) * 1.5
    centred = (asked - features.mean(dim=0)) / deviation
    wanted = (centred @ torch.linalg.inv(shrunken) * centred).sum(dim=1).sqrt()
    found = LevelSpread.fit(features)(asked.float())
    torch.testing.assert_close(found.double(), wanted, rtol=2e-3, atol=1e-3)


def test_one_that_breaks_a_correlation_is_strange_though_each_feature_is_usual() -> None:
    """The planted stranger: two features always agree, in it they do not."""
    base = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    noise = 0.1 * torch.randn(200, 2, generator=torch.Generator().manual_seed(1))
    spread = LevelSpread.fit(base + noise)
    agreeing, breaking = spread(torch.tensor([[1.5, 1.5], [1.5, -1.5]])).tolist()
    assert agreeing < 3 < breaking


def test_a_channel_that_was_always_silent_counts_when_it_speaks() -> None:
    features = torch.cat(
        [torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(50, 1)], 1
    )
    quiet, loud = LevelSpread.fit(features)(torch.tensor([[0.0, 0, 0, 0], [0.0, 0, 0, 1.0]])).tolist()
    assert loud > 20 * max(quiet, 1)


def test_images_that_repeat_give_finite_distances() -> None:
    spread = LevelSpread.fit(torch.ones(5, 7))
    assert torch.isfinite(spread(torch.rand(3, 7))).all()


@pytest.mark.parametrize("images", [25, 60, 200])
def test_about_the_share_of_new_images_is_beyond_the_limit(images: int) -> None:
    """Few images in many dimensions: their own distances would promise far too much, crossed ones do not."""
    widths, beyond, own = (100, 20), [], []
    for seed in range(12):
        features = known(images + 100, 120, seed=seed).float()
        fitted, new = features[:images], features[images:]
        spread = FeatureSpread.fit(fitted, widths)
        limited = spread.limited(cross_fitted(fitted, widths), 0.05)
        beyond.append(float((limited(new) > 1).double().mean()))
        own.append(float((spread.limited(spread.distances(fitted), 0.05)(new) > 1).double().mean()))
    assert sum(beyond) / len(beyond) < 0.08
    if images <= 60:
        assert sum(own) / len(own) > 0.3


def test_of_few_images_few_are_left_out_at_a_time() -> None:
    """A Gaussian of fewer images is farther from all: limits of five folds would spare too many strangers."""
    fold, off, off_by_five = torch.arange(40) % 5, 0.0, 0.0
    for seed in range(5):
        images = torch.nn.functional.normalize(known(240, 60, seed=seed).float(), dim=1)
        fitted, new = images[:40], images[40:]
        wanted = float(LevelSpread.fit(fitted)(new).mean())
        five = torch.empty(40)
        for number in range(5):
            five[fold == number] = LevelSpread.fit(fitted[fold != number])(fitted[fold == number])
        off += float(cross_fitted(fitted, (60,)).mean()) - wanted
        off_by_five += float(five.mean()) - wanted
    assert abs(off) < 0.6 * off_by_five


def test_the_strangest_level_counts() -> None:
    features = known(200, 10).float()
    spread = FeatureSpread.fit(features, (4, 6)).limited(torch.ones(50, 2), 0.05)
    asked = known(5, 10, seed=3).float()
    torch.testing.assert_close(spread(asked), spread.distances(asked).amax(dim=1))
    moved = asked.clone()
    moved[:, 4:] *= -1
    assert (spread(moved) == spread.distances(moved)[:, 1]).all()


def test_how_strongly_a_level_answers_counts_for_nothing() -> None:
    """Only in earlier versions; another mixture of channels counts in both."""
    features = known(200, 10).float().abs()
    spread = FeatureSpread.fit(features, (4, 6))
    asked = known(5, 10, seed=3).float().abs()
    torch.testing.assert_close(spread.distances(7 * asked), spread.distances(asked), rtol=1e-3, atol=1e-3)
    assert (spread.distances(asked.roll(1, dims=1)) - spread.distances(asked)).abs().max() > 0.1
    earlier = FeatureSpread([LevelSpread.fit(part) for part in features.split((4, 6), dim=1)], unit=False)
    assert (earlier.distances(7 * asked) > 3 * earlier.distances(asked)).all()


def test_tensors_are_small_and_restore_it() -> None:
    spread = FeatureSpread.fit(known(100, 300).float(), (100, 200))
    shapes = [(len(level.variances), len(level.mean)) for level in spread.levels]
    assert all(kept <= KEPT for kept, _ in shapes)
    again = FeatureSpread.empty(shapes)
    again.load_state_dict(spread.state_dict())
    asked = known(4, 300, seed=2).float()
    torch.testing.assert_close(again(asked), spread(asked))
