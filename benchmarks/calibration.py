"""Which images to calibrate on, and what prediction sets come to: frozen runs of several data sets.

    python benchmarks/calibration.py birds chest=folder:PATH palm=palm:PATH --logits FOLDER --out FILE

For each data set and seed a run is trained as `dprotonet train --mode frozen` does, and networks on five
folds of its training images. `choice` is measured on training and validation images alone: ways to calibrate,
fitted to four fifths of the out-of-fold answers and judged on the last; two kinds of prediction set. `test`
is what the test images say of the plain softmax, of a temperature from validation images and of one from
folds. Logits are kept in FOLDER, and taken from there the next time.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.config import Config, DataConfig, TrainingConfig
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.runs.calibration import UNSURE, Calibration, calibration_of
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.out_of_fold import FOLDS, OutOfFold, kept_answers
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.metrics.calibration import (
    brier_score,
    error_by_chance,
    expected_calibration_error,
    fitted_temperature,
    tempered,
)
from dprotonet.metrics.prediction_sets import conformal_scores, images_for, prediction_set, score_limit
from dprotonet.training.checkpoint import load_tensors, save_tensors
from dprotonet.training.evaluation import Predictions
from dprotonet.training.events import RoundDone

COVERAGES = (0.8, 0.9, 0.95, 0.99)
DRAWS = 20  # random cuts of the out-of-fold answers
Logits = dict[str, Tensor]  # logits and labels of test, val and oof


def logits_of(spec: str, seed: int, cache: Path) -> Logits:
    """Of test and validation images by the run, of training images by the networks of the folds."""
    if cache.is_file():
        return load_tensors(cache)
    config = Config(data=DataConfig(data=spec), training=TrainingConfig(mode="frozen", seed=seed))
    trainer, validation = Trainer(config, cache.with_suffix("")), []
    splits = build_splits(trainer.config.data)

    def watch(event: object) -> None:
        if isinstance(event, RoundDone) and event.kept:
            validation.append(event.predictions)

    test = finished(kept_answers(trainer, splits, splits.test), watch)
    oof = finished(OutOfFold(trainer, FOLDS).run(splits))
    found: Logits = {}
    for name, answers in (("test", test), ("val", validation[-1]), ("oof", oof)):
        found |= {name: answers.logits, f"{name}_labels": answers.labels}
    save_tensors(cache, found)
    return found


def fitted(logits: Tensor, labels: Tensor, *, smoothed: float, most: float) -> Callable[[Tensor], Tensor]:
    """A temperature; the other classes share 1 / (N + 2), but no more than `most`."""
    doubt, others = 1 / (len(labels) + 2), max(logits.shape[1] - 1, 1)
    temperature = fitted_temperature(logits, labels, smoothing=doubt * smoothed)
    return lambda values: tempered(values, temperature, min(doubt, most) / others)


WAYS: dict[str, Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]] = {
    "softmax": lambda logits, labels: lambda values: values.softmax(dim=1),
    "temperature": lambda logits, labels: fitted(logits, labels, smoothed=0, most=0),
    "floor": lambda logits, labels: fitted(logits, labels, smoothed=0, most=UNSURE),
    "quarter smoothed, floor": lambda logits, labels: fitted(logits, labels, smoothed=0.25, most=UNSURE),
    "half smoothed, floor": lambda logits, labels: fitted(logits, labels, smoothed=0.5, most=UNSURE),
    "smoothed, floor": lambda logits, labels: fitted(logits, labels, smoothed=1, most=UNSURE),
    "smoothed, floor 1 / (N + 2)": lambda logits, labels: fitted(logits, labels, smoothed=1, most=1),
}


def choice(found: Logits) -> dict[str, Any]:
    """Ways to calibrate and kinds of sets on answers that no test image is among."""
    logits, labels = found["oof"].double(), found["oof_labels"]
    held = {name: torch.zeros(DRAWS, 3) for name in WAYS}
    for draw in range(DRAWS):
        part = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw)) % 5
        for name, way in WAYS.items():
            shares = torch.empty_like(logits)
            for number in range(5):
                own = part == number
                shares[own] = way(logits[~own], labels[~own])(logits[own])
            held[name][draw] = torch.tensor(_judged(shares, labels))
    validation = found["val"].double(), found["val_labels"]
    few = {f"{name}, of validation": _judged(WAYS[name](*validation)(logits), labels) for name in WAYS}
    ways = {name: values.mean(0).tolist() for name, values in held.items()} | few
    names = ("cross_entropy", "brier", "ece")
    return {
        "ways": {name: dict(zip(names, values, strict=True)) for name, values in ways.items()},
        "sets at 0.9": _kinds(logits, labels),
    }


def _judged(shares: Tensor, labels: Tensor) -> list[float]:
    right = shares.gather(1, labels[:, None]).clamp_min(1e-12).log()
    return [-right.mean().item(), brier_score(shares, labels), expected_calibration_error(shares, labels)]


def _kinds(logits: Tensor, labels: Tensor) -> dict[str, dict[str, float]]:
    """Least ambiguous sets, and adaptive ones (classes until their sum is enough), on halves."""
    shares = calibration_of(logits, labels, "").probabilities(logits)
    kinds: dict[str, list[tuple[float, float]]] = {"least ambiguous": [], "adaptive": []}
    for draw in range(DRAWS):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw))
        one, other = order[: len(order) // 2], order[len(order) // 2 :]
        limit = score_limit(conformal_scores(shares[one], labels[one]), 0.9)
        kinds["least ambiguous"].append(_covered(prediction_set(shares[other], limit), labels[other]))
        sums = _sums(shares)
        limit = score_limit(sums[one].gather(1, labels[one][:, None]).flatten(), 0.9)
        kinds["adaptive"].append(_covered(sums[other] <= limit, labels[other]))
    means = {name: torch.tensor(values).mean(0).tolist() for name, values in kinds.items()}
    return {name: {"coverage": covered, "size": size} for name, (covered, size) in means.items()}


def _sums(shares: Tensor) -> Tensor:
    """For each class the probability of all that are at least as likely."""
    ranked, order = shares.sort(dim=1, descending=True)
    return torch.zeros_like(shares).scatter_(1, order, ranked.cumsum(dim=1))


def _covered(sets: Tensor, labels: Tensor) -> tuple[float, float]:
    return sets.gather(1, labels[:, None]).double().mean().item(), sets.double().sum(1).mean().item()


def tested(found: Logits) -> dict[str, Any]:
    """The same network, stated in three ways, on test images."""
    logits, labels = found["test"].double(), found["test_labels"]
    of = {
        "validation": calibration_of(found["val"], found["val_labels"], ""),
        "folds": calibration_of(found["oof"], found["oof_labels"], ""),
    }
    return {
        "images": len(labels),
        "accuracy": Predictions(logits, labels).accuracy,
        "softmax": _stated(logits.softmax(1), labels),
        **{
            name: {
                "images": known.images,
                "temperature": known.temperature,
                **_stated(known.probabilities(logits), labels),
                "sets": _sets(known, logits, labels),
            }
            for name, known in of.items()
        },
    }


def _stated(shares: Tensor, labels: Tensor) -> dict[str, Any]:
    above = shares.amax(1) > 0.995
    return {
        "ece": expected_calibration_error(shares, labels),
        "ece_by_chance": asdict(error_by_chance(shares)),
        "brier": brier_score(shares, labels),
        "above_99_5": int(above.sum()),
        "above_99_5_wrong": int((above & (shares.argmax(1) != labels)).sum()),
    }


def _sets(known: Calibration, logits: Tensor, labels: Tensor) -> dict[str, Any]:
    shares = known.probabilities(logits)
    found = {}
    for coverage in COVERAGES:
        if images_for(coverage) <= len(known.scores):
            covered, size = _covered(prediction_set(shares, known.limit(coverage)), labels)
            found[str(coverage)] = {"coverage": covered, "size": size}
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="NAME=SPEC, as --data of dprotonet train has it, or birds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--logits", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    options, results = arguments(), {}
    options.logits.mkdir(parents=True, exist_ok=True)
    for word in options.data:
        name, _, spec = word.partition("=")
        for seed in options.seeds:
            found = logits_of(spec or name, seed, options.logits / f"{name}-{seed}.safetensors")
            results[f"{name}, seed {seed}"] = {"choice": choice(found), "test": tested(found)}
    command = "python benchmarks/calibration.py NAME=DATA … --logits FOLDER --out FILE"
    text = json.dumps({"command": command, "seeds": options.seeds, "results": results}, indent=1)
    options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
