"""The metrics of explanations once more, slow and literal: float64 loops over pixels."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from dprotonet.metrics.classification import confusion_matrix, sensitivity, specificity
from dprotonet.metrics.comparison import paired_bootstrap
from dprotonet.metrics.faithfulness import (
    RiseProtocol,
    area_under,
    average_drop,
    average_gain,
    average_increase,
    deletion_curves,
    explained_images,
    insertion_curves,
)
from dprotonet.metrics.localization import energy_share, overlap, pointing, sweep, top_share

N, CHANNELS, HEIGHT, WIDTH, STEPS = 3, 2, 9, 8, 5
KERNEL, SIGMA = 5, 2.0
PLACES = list(itertools.product(range(HEIGHT), range(WIDTH)))
PROTOCOL = RiseProtocol(steps=STEPS, kernel=KERNEL, sigma=SIGMA, batch=4)
DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def random(*shape: int, seed: int) -> Tensor:
    """Float64 values that float32 holds exactly."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


IMAGES = random(N, CHANNELS, HEIGHT, WIDTH, seed=0)
WEIGHTS = random(N, CHANNELS, HEIGHT, WIDTH, seed=1)
MAPS = {
    "untied": random(N, HEIGHT, WIDTH, seed=2),
    "tied": random(N, HEIGHT, WIDTH, seed=2).round(),
}
TRUTH = random(N, HEIGHT, WIDTH, seed=3) > 0.8
TRUTH[1] = False
every_map = pytest.mark.parametrize("maps", MAPS.values(), ids=MAPS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def fast_score(images: Tensor, rows: Tensor) -> Tensor:
    return torch.sigmoid((images * WEIGHTS[rows].to(images.dtype)).sum(dim=(1, 2, 3)))


def assert_near(fast: Tensor, literal: list[float] | list[list[float]], dtype: torch.dtype) -> None:
    expected = torch.tensor(literal, dtype=torch.double)
    torch.testing.assert_close(fast.double(), expected, rtol=0, atol=TOLERANCE[dtype] * 100, equal_nan=True)


# ── the literal definitions, one image ───────────────────────────────────────────────────────────────


def literal_score(image: Tensor, weight: Tensor) -> float:
    logit = 0.0
    for channel, (row, column) in itertools.product(range(CHANNELS), PLACES):
        logit += (image[channel, row, column] * weight[channel, row, column]).item()
    return 1 / (1 + math.exp(-logit))


def hottest_first(heat: Tensor) -> list[tuple[int, int]]:
    """All places by value, the largest first, the earlier in reading order first among equals."""
    return sorted(PLACES, key=lambda place: (-heat[place].item(), PLACES.index(place)))


def literal_blur(image: Tensor) -> Tensor:
    """The reference's kernel, the response of scipy's filter to a point, over zeros outside the image."""
    point = np.zeros((KERNEL, KERNEL))
    point[KERNEL // 2, KERNEL // 2] = 1
    kernel, blurred = gaussian_filter(point, SIGMA), torch.zeros_like(image)
    for channel, (row, column) in itertools.product(range(CHANNELS), PLACES):
        for i, j in itertools.product(range(KERNEL), range(KERNEL)):
            y, x = row + i - KERNEL // 2, column + j - KERNEL // 2
            if (y, x) in PLACES:
                blurred[channel, row, column] += kernel[i, j] * image[channel, y, x]
    return blurred


def literal_curve(start: Tensor, end: Tensor, heat: Tensor, weight: Tensor) -> list[float]:
    current, order, done = start.clone(), hottest_first(heat), 0
    curve = [literal_score(current, weight)]
    for step in range(1, STEPS + 1):
        wanted = math.floor(step * len(PLACES) / STEPS)
        for row, column in order[done:wanted]:
            current[:, row, column] = end[:, row, column]
        done = wanted
        curve.append(literal_score(current, weight))
    return curve


def literal_area(curve: list[float]) -> float:
    return sum((left + right) / 2 for left, right in itertools.pairwise(curve)) / (len(curve) - 1)


def literal_overlap(found: set[tuple[int, int]], truth: Tensor) -> list[float]:
    hit = sum(1 for place in PLACES if place in found and truth[place])
    false = sum(1 for place in PLACES if place in found and not truth[place])
    missed = sum(1 for place in PLACES if place not in found and truth[place])
    if hit + missed == 0:
        return [math.nan] * 4
    dice, iou = 2 * hit / (false + 2 * hit + missed), hit / (false + hit + missed)
    return [dice, iou, hit / (hit + false) if found else 0.0, hit / (hit + missed)]


# ── against the fast code ────────────────────────────────────────────────────────────────────────────


@every_dtype
@every_map
def test_deletion(maps: Tensor, dtype: torch.dtype) -> None:
    expected = [literal_curve(IMAGES[i], 0 * IMAGES[i], maps[i], WEIGHTS[i]) for i in range(N)]
    curves = deletion_curves(fast_score, IMAGES.to(dtype), maps.to(dtype), protocol=PROTOCOL)
    assert_near(curves, expected, dtype)
    assert_near(area_under(curves), [literal_area(curve) for curve in expected], dtype)


@every_dtype
@every_map
def test_insertion(maps: Tensor, dtype: torch.dtype) -> None:
    expected = [literal_curve(literal_blur(IMAGES[i]), IMAGES[i], maps[i], WEIGHTS[i]) for i in range(N)]
    curves = insertion_curves(fast_score, IMAGES.to(dtype), maps.to(dtype), protocol=PROTOCOL)
    assert_near(curves, expected, dtype)
    assert_near(area_under(curves), [literal_area(curve) for curve in expected], dtype)


def test_the_blur_of_rise_itself() -> None:
    """11 × 11 and sigma 5, seen as the first image of an insertion of a single bright pixel."""
    point, seen = torch.zeros(1, 1, 11, 11, dtype=torch.double), []
    point[0, 0, 5, 5] = 1

    def score(given: Tensor, rows: Tensor) -> Tensor:
        seen.append(given)
        return given.mean(dim=(1, 2, 3))

    insertion_curves(score, point, point[:, 0], protocol=RiseProtocol())
    np.testing.assert_allclose(seen[0][0, 0].numpy(), gaussian_filter(point[0, 0].numpy(), 5), atol=1e-12)


@every_map
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_the_top_share_kept(maps: Tensor, keep: float) -> None:
    shown = explained_images(IMAGES, maps, keep=keep)
    for i in range(N):
        kept = hottest_first(maps[i])[: round(keep * len(PLACES))]
        for place in PLACES:
            expected = IMAGES[i][:, *place] if place in kept else torch.zeros(CHANNELS)
            assert shown[i][:, *place].tolist() == expected.tolist()


@every_dtype
def test_drop_increase_and_gain(dtype: torch.dtype) -> None:
    before, after = (torch.sigmoid(2 * random(20, seed=seed)) for seed in (4, 5))
    pairs = list(zip(before.tolist(), after.tolist(), strict=True))
    given = before.to(dtype), after.to(dtype)
    assert_near(average_drop(*given), [100 * max(0, p - o) / p for p, o in pairs], dtype)
    assert_near(average_increase(*given), [100.0 if o > p else 0.0 for p, o in pairs], dtype)
    assert_near(average_gain(*given), [100 * max(0, o - p) / (1 - p) for p, o in pairs], dtype)


@every_map
def test_overlap_at_every_percent(maps: Tensor) -> None:
    swept = torch.stack(list(sweep(maps, TRUTH)))  # (4, N, 99)
    for i, percent in itertools.product(range(N), range(1, 100)):
        count = round(percent / 100 * len(PLACES))
        expected = literal_overlap(set(hottest_first(maps[i])[:count]), TRUTH[i])
        assert_near(swept[:, i, percent - 1], expected, torch.float32)
        if percent % 20 == 0:
            single = overlap(top_share(maps, percent / 100), TRUTH)
            assert_near(torch.stack(list(single))[:, i], expected, torch.float32)


@every_map
def test_pointing_and_energy(maps: Tensor) -> None:
    heat = maps - maps.min()
    points, energy = [], []
    for i in range(N):
        inside = sum(heat[i][place].item() for place in PLACES if TRUTH[i][place])
        known = any(TRUTH[i][place] for place in PLACES)
        points.append(float(TRUTH[i][hottest_first(heat[i])[0]]) if known else math.nan)
        energy.append(inside / sum(heat[i][place].item() for place in PLACES) if known else math.nan)
    assert_near(pointing(heat, TRUTH), points, torch.float32)
    assert_near(energy_share(heat, TRUTH), energy, torch.float64)


def test_the_bootstrap_approaches_the_enumeration_of_all_resamples() -> None:
    """Five pairs have 5⁵ resamples: few enough to visit each."""
    differences = [0.9, -0.7, 0.4, 0.85, -0.13]
    means = [sum(drawn) / 5 for drawn in itertools.product(differences, repeat=5)]

    def below(bound: float) -> float:
        return sum(mean < bound for mean in means) / len(means)

    result = paired_bootstrap(torch.tensor(differences).double(), torch.zeros(5), resamples=40_000)
    assert result.difference == pytest.approx(sum(differences) / 5)
    for bound, share in ((result.low, 0.025), (result.high, 0.975)):
        assert below(bound - 1e-6) - 0.004 < share < below(bound + 1e-6) + 0.004
    assert result.p == pytest.approx(2 * min(below(0), 1 - below(0)), abs=0.01)


def literal_reference_curve(
    start: Tensor, end: Tensor, heat: Tensor, weight: Tensor, step: int
) -> list[float]:
    """RISE's own loop: ceil(HW / step) steps of `step` pixels, the last one of what is left."""
    current, order = start.clone(), hottest_first(heat)
    steps = (len(PLACES) + step - 1) // step
    curve = []
    for number in range(steps + 1):
        curve.append(literal_score(current, weight))
        if number < steps:
            for row, column in order[step * number : step * (number + 1)]:
                current[:, row, column] = end[:, row, column]
    return curve


@every_map
@pytest.mark.parametrize("step", [7, 9, 100])
def test_so_many_pixels_a_step(maps: Tensor, step: int) -> None:
    protocol = RiseProtocol(steps=None, pixels_a_step=step, kernel=KERNEL, sigma=SIGMA)
    ways = {
        deletion_curves: [(IMAGES[i], 0 * IMAGES[i]) for i in range(N)],
        insertion_curves: [(literal_blur(IMAGES[i]), IMAGES[i]) for i in range(N)],
    }
    for curves, ends in ways.items():
        expected = [literal_reference_curve(*ends[i], maps[i], WEIGHTS[i], step) for i in range(N)]
        assert_near(curves(fast_score, IMAGES, maps, protocol=protocol), expected, torch.float64)


def test_in_pixels_hidden_is_black_and_so_is_the_outside_of_the_blur() -> None:
    black = torch.tensor([-1.5, 0.5]).double().view(2, 1, 1)
    protocol = RiseProtocol(steps=STEPS, kernel=KERNEL, sigma=SIGMA, space="pixels")
    dark = black.expand(CHANNELS, HEIGHT, WIDTH)
    maps = MAPS["untied"]
    gone = [literal_curve(IMAGES[i], dark, maps[i], WEIGHTS[i]) for i in range(N)]
    assert_near(deletion_curves(fast_score, IMAGES, maps, protocol=protocol, fill=black), gone, torch.float64)
    soft = [literal_blur(IMAGES[i] - dark) + dark for i in range(N)]
    come = [literal_curve(soft[i], IMAGES[i], maps[i], WEIGHTS[i]) for i in range(N)]
    assert_near(
        insertion_curves(fast_score, IMAGES, maps, protocol=protocol, fill=black), come, torch.float64
    )


@pytest.mark.parametrize("keep", [None, 0.5])
def test_what_is_hidden_becomes_the_fill(keep: float | None) -> None:
    heat, fill = torch.sigmoid(MAPS["untied"]), torch.tensor([-1.5, 0.5]).double()
    shown = explained_images(IMAGES, heat, keep=keep, fill=fill.view(2, 1, 1))
    for i, (row, column) in itertools.product(range(N), PLACES):
        kept = hottest_first(heat[i])[: round((keep or 0) * len(PLACES))]
        share = heat[i, row, column].item() if keep is None else float((row, column) in kept)
        for channel in range(CHANNELS):
            value = IMAGES[i, channel, row, column].item() * share + fill[channel].item() * (1 - share)
            assert shown[i, channel, row, column].item() == pytest.approx(value, abs=1e-12)


def test_sensitivity_and_specificity_answer_by_answer() -> None:
    labels, predictions = (
        torch.randint(3, (40,), generator=torch.Generator().manual_seed(s)) for s in (0, 1)
    )
    confusion, pairs = confusion_matrix(labels, predictions, 3), list(zip(labels, predictions, strict=True))
    for positive in range(3):
        found = sum(1 for true, said in pairs if true == positive and said == positive)
        missed = sum(1 for true, said in pairs if true == positive and said != positive)
        left = sum(1 for true, said in pairs if true != positive and said != positive)
        alarmed = sum(1 for true, said in pairs if true != positive and said == positive)
        assert sensitivity(confusion, positive) == pytest.approx(found / (found + missed))
        assert specificity(confusion, positive) == pytest.approx(left / (left + alarmed))
