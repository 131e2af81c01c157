"""Whether a model's probabilities are true on a split, beside what its plain softmax would have stated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor, nn

from dprotonet.experiment.runs.calibration import Calibration, shares_of
from dprotonet.figures import ReliabilityGroup, reliability_figure
from dprotonet.files import read_json
from dprotonet.metrics.calibration import (
    ReliabilityBin,
    accuracy_at_coverage,
    brier_score,
    calibration_error,
    error_by_chance,
    reliability_bins,
)
from dprotonet.metrics.classification import wilson_interval
from dprotonet.metrics.prediction_sets import images_for, prediction_set
from dprotonet.training.checkpoint import weights_digest
from dprotonet.training.evaluation import Predictions

COVERAGES = (0.5, 0.8, 0.9, 0.95)  # shares of the images, the surest first
SETS = (0.8, 0.9, 0.95, 0.99)  # coverages that prediction sets are asked for
FILE = "evaluation/test.json"  # in the run folder
SURE = 0.995  # answers above it should be wrong once in 200 times at most


def calibration_summary(predictions: Predictions, calibration: Calibration | None) -> dict[str, Any]:
    """ECE, Brier score, accuracy at coverage, reliability bins and the surest answers, as plain values;
    and what prediction sets cover.

    `softmax` has the errors of the plain softmax, which are the same where a run is not calibrated. Beside
    each ECE stands what chance alone makes of it on so many images, the probabilities being true.
    """
    logits = predictions.logits.double()
    shares = shares_of(logits, calibration)
    return {
        "calibrated": calibration is not None,
        "temperature": None if calibration is None else calibration.temperature,
        **_errors(shares, predictions.labels),
        "softmax": _errors(logits.softmax(dim=1), predictions.labels),
        "accuracy_at_coverage": {
            f"{share:g}": _number(accuracy_at_coverage(shares, predictions.labels, share))
            for share in COVERAGES
        },
        "reliability": [_bin(item) for item in reliability_bins(shares, predictions.labels)],
        "class_sets": _class_sets(shares, predictions.labels, calibration),
    }


@dataclass(frozen=True)
class SetFigures:
    """What prediction sets did on labelled images: the share with the true class in them, classes per set."""

    images: int
    covered: float
    mean_size: float


def promised(calibration: Calibration | None) -> list[float]:
    """Those of SETS for which enough images were calibrated on."""
    count = 0 if calibration is None else len(calibration.scores)
    return [coverage for coverage in SETS if images_for(coverage) <= count]


def measured_sets(folder: Path | None, network: nn.Module) -> dict[float, SetFigures]:
    """By coverage, what the last `dprotonet evaluate` found of these weights on test images.

    Nothing where there was none, or an older version made it.
    """
    try:
        found = {} if folder is None else read_json(folder / FILE)
        if not found or found["weights"] != weights_digest(network):
            return {}
        return {float(coverage): SetFigures(**sets) for coverage, sets in found["class_sets"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _class_sets(shares: Tensor, labels: Tensor, calibration: Calibration | None) -> dict[str, Any]:
    if calibration is None or not len(shares):
        return {}
    limits = {coverage: calibration.limit(coverage) for coverage in promised(calibration)}
    return {f"{coverage:g}": asdict(_covered(shares, labels, limit)) for coverage, limit in limits.items()}


def _covered(shares: Tensor, labels: Tensor, limit: float) -> SetFigures:
    within = prediction_set(shares, limit)
    right = within.gather(1, labels.to(within.device)[:, None])
    return SetFigures(len(shares), float(right.double().mean()), float(within.sum(dim=1).double().mean()))


def _errors(shares: Tensor, labels: Tensor) -> dict[str, Any]:
    sure, guess = shares.max(dim=1)
    above = sure > SURE
    return {
        "ece": _number(calibration_error(reliability_bins(shares, labels))),
        "ece_by_chance": {name: _number(value) for name, value in asdict(error_by_chance(shares)).items()},
        "brier": _number(brier_score(shares, labels)),
        "above_99_5": {"answers": int(above.sum()), "wrong": int((above & (guess != labels)).sum())},
    }


def reliability_picture(bins: Sequence[Mapping[str, Any]], *, title: str | None = None) -> Image.Image | None:
    """The reliability diagram of the bins of a summary; None where no bin has an image."""
    groups = [_group(**item) for item in bins if item["images"]]
    return reliability_figure(groups, title=title) if groups else None


def _group(*, images: int, confidence: float, accuracy: float, **_: float) -> ReliabilityGroup:
    low, high = wilson_interval(round(accuracy * images), images)
    return ReliabilityGroup(confidence, accuracy, low, high, images)


def _bin(item: ReliabilityBin) -> dict[str, Any]:
    return {name: _number(value) if value != value else value for name, value in asdict(item).items()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
