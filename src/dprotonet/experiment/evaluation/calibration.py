"""Whether a model's probabilities are true on a split, beside what its plain softmax would have stated."""

import math
from dataclasses import asdict
from typing import Any

from torch import Tensor

from dprotonet.experiment.runs.calibration import Calibration, shares_of
from dprotonet.metrics.calibration import (
    ReliabilityBin,
    accuracy_at_coverage,
    brier_score,
    calibration_error,
    reliability_bins,
)
from dprotonet.training.evaluation import Predictions

COVERAGES = (0.5, 0.8, 0.9, 0.95)  # shares of the images, the surest first
SURE = 0.995  # answers above it should be wrong once in 200 times at most


def calibration_summary(predictions: Predictions, calibration: Calibration | None) -> dict[str, Any]:
    """ECE, Brier score, accuracy at coverage, reliability bins and the surest answers, as plain values.

    `softmax` has the errors of the plain softmax, which are the same where a run is not calibrated.
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
    }


def _errors(shares: Tensor, labels: Tensor) -> dict[str, Any]:
    sure, guess = shares.max(dim=1)
    above = sure > SURE
    return {
        "ece": _number(calibration_error(reliability_bins(shares, labels))),
        "brier": _number(brier_score(shares, labels)),
        "above_99_5": {"answers": int(above.sum()), "wrong": int((above & (guess != labels)).sum())},
    }


def _bin(item: ReliabilityBin) -> dict[str, Any]:
    return {name: _number(value) if value != value else value for name, value in asdict(item).items()}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
