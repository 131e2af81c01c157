"""What a run's logits mean in per cent: the temperature they are divided by before the softmax.

Fitted to images that the network has not learned from at the end of training, or later by `dprotonet
calibrate`, and kept in the run folder as calibration.json with a digest of the weights it belongs to. Only
probabilities change: logits, evidence and the predicted class stay. A run without it states the softmax of
its logits, as it is. The same images give the limits of prediction sets.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.files import read_json, write_text
from dprotonet.metrics.calibration import fitted_temperature, tempered
from dprotonet.metrics.prediction_sets import (
    conformal_scores,
    images_for,
    most_covered,
    prediction_set,
    score_limit,
)
from dprotonet.percent import percent
from dprotonet.training.checkpoint import load_tensors, tensor_digest, weights_digest

logger = logging.getLogger(__name__)

FILE = "calibration.json"
VALIDATION = "validation images"
SMOOTHING = 0.25  # of Laplace's doubt: chosen on out-of-fold answers (docs/calibration.md)
UNSURE = 0.005  # what is left to the other classes at least, by few images; more of it distorts the answers
_DECIMALS = 6  # of scores


@dataclass(frozen=True)
class Calibration:
    """Probabilities are `floor` + what is left × softmax(logits / `temperature`); fitted to `images`."""

    temperature: float
    floor: float  # the least probability of any class
    images: int
    weights: str  # digest of the network it belongs to
    source: str = VALIDATION  # which images
    scores: Sequence[float] = ()  # conformal ones of images, sorted; an older file has none

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", tuple(self.scores))  # JSON has lists

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of every class, from logits (…, C)."""
        return tempered(logits, self.temperature, self.floor)

    def class_set(self, probabilities: Tensor, coverage: float) -> list[int]:
        """Classes among which the truth is with that share, the likeliest first, of probabilities (C,)."""
        within = prediction_set(probabilities, self.limit(coverage)).tolist()
        ranked = probabilities.argsort(descending=True, stable=True).tolist()
        return [label for label in ranked if within[label]]

    def limit(self, coverage: float) -> float:
        """The limit of prediction sets in which the truth is with that share."""
        if not 0 < coverage < 1:
            raise UserError(f"coverage is {coverage}; it must lie between 0 and 1, such as 0.9")
        count = len(self.scores)
        if images_for(coverage) > count:
            raise UserError(_too_few(coverage, count, self.source))
        return score_limit(torch.tensor(self.scores, dtype=torch.float64), coverage)

    def fits(self, network: nn.Module) -> bool:
        """Whether it was fitted to these weights."""
        return self.weights == weights_digest(network)

    def write(self, folder: Path) -> None:
        write_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Calibration | None":
        """What the run folder has; None where it has nothing."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            return checked(cls(**read_json(path)))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path} is damaged ({error}); delete it and make it anew with dprotonet calibrate"
            ) from None


def _too_few(coverage: float, count: int, source: str) -> str:
    if not count:
        return "this run was calibrated by an older version, without scores; run dprotonet calibrate first"
    most = percent(math.floor(1000 * most_covered(count)) / 1000)
    return (
        f"a coverage of {percent(coverage)} takes {images_for(coverage)} images that the run has not learned "
        f"from, and it was calibrated on {count}, which are enough for {most}; ask for less, or calibrate it "
        f"on more with dprotonet calibrate {'--folds 5' if source == VALIDATION else '--data'}"
    )


def calibration_of(
    logits: Tensor, labels: Tensor, network: nn.Module | str, *, source: str = VALIDATION
) -> Calibration:
    """The temperature from logits (N, C) and labels (N,) of images that were not trained on.

    `network` is the one they belong to, or the digest of its weights.

    Laplace's rule of succession gives the next answer after N right ones a chance of 1 / (N + 2) to be wrong.
    The truth is smoothed by a part of that for the fit: else answers that are all right would ask for the
    coldest temperature. No class is stated with less than its part of it either, or of UNSURE, whichever is
    less: so with fewer than 198 images no answer is stated with more than 99.5 %.
    """
    count, classes = logits.shape
    doubt = 1 / (count + 2)
    temperature = fitted_temperature(logits, labels, smoothing=SMOOTHING * doubt)
    digest = network if isinstance(network, str) else weights_digest(network)
    floor = min(doubt, UNSURE) / max(classes - 1, 1)
    found = Calibration(temperature, floor, count, digest, source)
    return _with_scores(found, logits, labels)


def adjusted(
    old: Calibration, before: Tensor, after: Tensor, labels: Tensor, network: nn.Module
) -> Calibration:
    """For a network with changed prototypes: what the change did to the same validation images' logits.

    One that was fitted to them is fitted anew. One that was fitted to more images keeps what these said: its
    temperature changes as that of the validation images does, whose own luck cancels out.
    """
    fresh = calibration_of(after, labels, network)
    if old.source == VALIDATION:
        return fresh
    temperature = old.temperature * fresh.temperature / calibration_of(before, labels, network).temperature
    found = replace(old, temperature=temperature, weights=fresh.weights)
    return _with_scores(found, after, labels)


def _with_scores(found: Calibration, logits: Tensor, labels: Tensor) -> Calibration:
    scores = conformal_scores(found.probabilities(logits.double()), labels).sort().values
    return replace(found, scores=[round(score, _DECIMALS) for score in scores.tolist()])


def set_source(calibration: Calibration | None, coverage: float) -> Calibration:
    """What prediction sets of this coverage are made by; an error where nothing can promise so much."""
    if calibration is None:
        raise UserError("prediction sets need a calibrated run; run dprotonet calibrate first")
    calibration.limit(coverage)
    return calibration


def shares_of(logits: Tensor, calibration: Calibration | None) -> Tensor:
    """Probabilities of logits (…, C): calibrated, or their softmax where nothing is known."""
    return logits.softmax(dim=-1) if calibration is None else calibration.probabilities(logits)


def stored_calibration(folder: Path, network: nn.Module) -> Calibration | None:
    """What a run folder has for this network; one of other weights counts as none."""
    found = Calibration.read(folder)
    if found is not None and not found.fits(network):
        logger.warning("%s belongs to other weights; make it anew with dprotonet calibrate", folder / FILE)
        return None
    return found


def stored_digest(folder: Path) -> str:
    """Of the weights in a run folder, as `weights_digest` of their network."""
    return tensor_digest(dict(sorted(load_tensors(folder / "model.safetensors").items())), size=8)


def keep_calibration(folder: Path, known: Calibration | None, network: nn.Module) -> None:
    """Into a run folder what belongs to this network; one of other weights is not left lying there."""
    if known is not None and known.fits(network):
        known.write(folder)
    else:
        (folder / FILE).unlink(missing_ok=True)


def checked(found: Calibration) -> Calibration:
    """As it is, if its numbers can be used."""
    numbers = (found.temperature, found.floor, found.images)
    if not all(type(value) in (int, float) and math.isfinite(value) and value > 0 for value in numbers):
        raise ValueError("temperature, floor and images must be numbers above 0")
    if not found.floor < 0.5 or not isinstance(found.weights, str) or not isinstance(found.source, str):
        raise ValueError("floor must be below 0.5, weights a digest and source words")
    if not all(type(score) in (int, float) and 0 <= score <= 1 for score in found.scores):
        raise ValueError("scores must lie between 0 and 1")
    return found
