"""Whether a stated probability is true: of all answers given with 90 %, nine in ten should be right.

Expected calibration error and reliability bins (Guo et al., 2017: 15 bins of equal width, the probability of
the predicted class), Brier score, accuracy of the surest answers, and the temperature that logits are to be
divided by. Everything is computed in float64 on the CPU; probabilities and logits are (N, C), labels (N,).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_numbers, class_numbers, within_unit

BINS = 15
DRAWS = 1000  # of labels, for the error that chance alone makes
COLDEST, HOTTEST = 0.01, 100.0  # between which a temperature is looked for
_GOLDEN = (math.sqrt(5) - 1) / 2
_STEPS = 80  # of the golden section: log T is known to 1e-12 and better
_FLAT = 1e-12  # by which the loss must differ for one temperature to be better than another


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers whose probability lies in (low, high]: how many, how sure on average, and what share is right.

    `confidence` and `accuracy` are NaN where there is no answer.
    """

    low: float
    high: float
    images: int
    confidence: float
    accuracy: float


def reliability_bins(
    probabilities: Tensor, labels: Tensor, *, bins: int = BINS
) -> tuple[ReliabilityBin, ...]:
    """Answers sorted by the probability of the predicted class into bins of equal width."""
    if bins < 1:
        raise ValueError(f"bins is {bins}; at least one is needed")
    sure, right = _answers(probabilities, labels)
    place = _bin_numbers(sure, bins)
    found = []
    for number in range(bins):
        inside = place == number
        means = sure[inside].mean().item(), right[inside].mean().item()  # NaN of none
        found.append(ReliabilityBin(number / bins, (number + 1) / bins, int(inside.sum()), *means))
    return tuple(found)


def _bin_numbers(sure: Tensor, bins: int) -> Tensor:
    return ((sure * bins).ceil().long() - 1).clamp(0, bins - 1)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, *, bins: int = BINS) -> float:
    """Mean over images of |accuracy - confidence| of their bin; NaN when there is no image."""
    return calibration_error(reliability_bins(probabilities, labels, bins=bins))


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """The same from the bins."""
    total = sum(item.images for item in bins)
    gaps = [item.images * abs(item.accuracy - item.confidence) for item in bins if item.images]
    return math.fsum(gaps) / total if total else math.nan


@dataclass(frozen=True)
class ChanceError:
    """The calibration error of a perfectly calibrated model: on average, and what 19 in 20 stay below."""

    mean: float
    high: float


def error_by_chance(
    probabilities: Tensor, *, bins: int = BINS, draws: int = DRAWS, seed: int = 0
) -> ChanceError:
    """The calibration error that answers stated with these probabilities have if every one of them is true.

    With few images it is far from 0: ten answers of 90 % are seldom right nine times exactly. Whether an
    answer is right is drawn from its probability, `draws` times. NaN when there is no image.
    """
    sure = within_unit(probabilities.detach().cpu().double(), "probabilities").amax(dim=1)
    if not len(sure):
        return ChanceError(math.nan, math.nan)
    places = torch.nn.functional.one_hot(_bin_numbers(sure, bins), bins).double()
    stated, random = sure @ places, torch.Generator().manual_seed(seed)
    found = []
    for _ in range(draws):
        right = (torch.rand(len(sure), generator=random, dtype=torch.float64) < sure).double()
        found.append((right @ places - stated).abs().sum() / len(sure))
    errors = torch.stack(found)
    return ChanceError(errors.mean().item(), errors.quantile(0.95).item())


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    """Mean squared distance of the probabilities from the truth, over all classes: 0 is best, 2 worst.

    Brier's own form (1950). With two classes it is twice the form that looks at one of them only.
    """
    shares, truth = _checked(probabilities, labels)
    wanted = torch.zeros_like(shares).scatter_(1, truth[:, None], 1.0)
    return (shares - wanted).square().sum(dim=1).mean().item()


def accuracy_at_coverage(probabilities: Tensor, labels: Tensor, coverage: float) -> float:
    """Share of right answers among the surest `coverage` of all images (rounded up); NaN without images."""
    if not 0 < coverage <= 1:
        raise ValueError(f"coverage is {coverage}; it must be above 0, and 1 at most")
    sure, right = _answers(probabilities, labels)
    count = math.ceil(coverage * len(sure) - 1e-9)
    return right[sure.argsort(descending=True, stable=True)[:count]].mean().item()


def tempered(logits: Tensor, temperature: float, floor: float = 0.0) -> Tensor:
    """Probabilities: softmax of logits / temperature over the last axis, no class below `floor`.

    The order of the classes stays, so the predicted class does.
    """
    classes = logits.shape[-1]
    if not temperature > 0 or not 0 <= floor * classes < 1:
        raise ValueError(f"temperature {temperature} must be above 0, floor {floor} in [0, 1 / {classes})")
    return floor + (1 - classes * floor) * (logits / temperature).softmax(dim=-1)


def fitted_temperature(
    logits: Tensor,
    labels: Tensor,
    *,
    smoothing: float = 0.0,
    least: float = COLDEST,
    most: float = HOTTEST,
) -> float:
    """The temperature in [least, most] of the smallest mean cross-entropy, by golden section on log T.

    `smoothing` is the share of the truth that the other classes get: without it, answers that are all right
    would ask for the coldest temperature. The loss is convex in 1 / T, so what is found is the minimum; where
    the logits of every image are all the same it says nothing, and T is 1.
    """
    if not 0 <= smoothing < 1 or not 0 < least <= 1 <= most:
        raise ValueError(f"smoothing {smoothing} must be in [0, 1), and 1 between {least} and {most}")
    values, truth = _checked_logits(logits, labels)
    others = smoothing / max(values.shape[1] - 1, 1)
    wanted = torch.full_like(values, others).scatter_(1, truth[:, None], 1 - smoothing)

    def loss(heat: float) -> float:
        return -(wanted * (values / math.exp(heat)).log_softmax(dim=1)).sum(dim=1).mean().item()

    found = _golden_section(loss, math.log(least), math.log(most))
    best = min((found, math.log(least), math.log(most)), key=loss)
    return 1.0 if loss(0.0) - loss(best) <= _FLAT else math.exp(best)


def _golden_section(loss: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is smallest."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = loss(right)
    return (low + high) / 2


def _answers(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Probability (N,) of each image's predicted class, and 1 where that is right, else 0."""
    shares, truth = _checked(probabilities, labels)
    sure, guess = shares.max(dim=1)
    return sure, (guess == truth).double()


def _checked(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    values, truth = _pair(probabilities, labels, "probabilities")
    return within_unit(values, "probabilities"), truth


def _checked_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    values, truth = _pair(logits, labels, "logits")
    check_numbers(values, "logits")
    if not len(values) or not values.isfinite().all():
        raise ValueError("a temperature is fitted to the finite logits of one image at least")
    return values, truth


def _pair(values: Tensor, labels: Tensor, what: str) -> tuple[Tensor, Tensor]:
    if values.ndim != 2 or labels.shape != (len(values),):
        shapes = f"{what} {tuple(values.shape)} against labels {tuple(labels.shape)}"
        raise ValueError(f"{shapes}; they must be (N, C) and (N,)")
    return values.detach().cpu().double(), class_numbers(labels.cpu(), "label", values.shape[1])
