"""How good a trained model is on a split: numbers for people and programs."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData, Splits
from dprotonet.data.transforms import Views
from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.build.training import build_accelerator
from dprotonet.experiment.evaluation.calibration import calibration_summary, reliability_picture
from dprotonet.experiment.evaluation.positive_class import positive_class
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.runs.calibration import Calibration, calibration_of, shares_of
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import confusion_figure
from dprotonet.files import write_text
from dprotonet.metrics.classification import (
    accuracy,
    auroc,
    balanced_accuracy,
    recall_per_class,
    sensitivity,
    specificity,
)
from dprotonet.percent import percent
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import weights_digest
from dprotonet.training.evaluation import Predictions, evaluate

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Evaluation:
    """Results of a classifier on one split."""

    split: str
    classes: Sequence[str]
    predictions: Predictions
    positive: str | None = None  # see `positive_class`
    calibration: Calibration | None = None  # by which the model's probabilities are stated

    def __post_init__(self) -> None:
        """NaN has a largest place, too: it would be counted as an answer."""
        broken = (~self.predictions.logits.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if broken:
            raise ComputationError(
                f"the logits of {len(broken)} images ({self.split}) are not finite, first image {broken[0]}: "
                "the weights are damaged, or half precision was too small"
            )

    @property
    def confusion(self) -> Tensor:
        return self.predictions.confusion

    @property
    def probabilities(self) -> Tensor:
        """As the model states them, (N, C) in float64."""
        return shares_of(self.predictions.logits.double(), self.calibration)

    def summary(self) -> dict[str, Any]:
        """Plain numbers; None where a measure is undefined (NaN is not JSON)."""
        chosen = positive_class(self.classes, self.positive)
        name, reason = chosen or (None, None)
        found = counted(self.confusion, self.classes, positive=name)
        sure = calibration_summary(self.predictions, self.calibration)
        return {
            "split": self.split,
            **found,
            "auroc": self._auroc(name),
            "positive_reason": reason,
            **sure,
        }

    def _auroc(self, name: str | None) -> float | None:
        """Of two classes, the one called `name` against the other; None for more."""
        if name is None:
            return None
        positive = list(self.classes).index(name)
        logits = self.predictions.logits.double()
        # Ranks images as the probability does, but does not make ties where that is 1 up to rounding.
        lead = logits[:, positive] - logits[:, 1 - positive]
        return _number(auroc(lead, self.predictions.labels == positive))


def counted(confusion: Tensor, classes: Sequence[str], *, positive: str | None) -> dict[str, Any]:
    """What a confusion matrix (C, C) tells; sensitivity and specificity None without a positive class."""
    place = None if positive is None else list(classes).index(positive)
    recalls = map(_number, recall_per_class(confusion).tolist())
    return {
        "images": int(confusion.sum()),
        "accuracy": _number(accuracy(confusion)),
        "balanced_accuracy": _number(balanced_accuracy(confusion)),
        "positive": positive,
        "sensitivity": None if place is None else _number(sensitivity(confusion, place)),
        "specificity": None if place is None else _number(specificity(confusion, place)),
        "per_class": dict(zip(classes, recalls, strict=True)),
        "confusion": confusion.tolist(),
    }


def evaluate_model(
    model: TrainedModel,
    data: DataConfig,
    *,
    split: str = "test",
    workers: int = 0,
    positive: str | None = None,
    on_scan: Progress | None = None,
    on_batch: Progress | None = None,
) -> Evaluation:
    """Run the model over a split of a data set that has the classes it was trained on."""
    positive_class(model.classes, positive)  # a wrong name is told before the work
    images = choose_split(build_splits(data, on_scan), split)
    evaluation = evaluate_images(model, images, split=split, workers=workers, on_batch=on_batch)
    return replace(evaluation, positive=positive)


def evaluate_images(
    model: TrainedModel,
    images: ImageData,
    *,
    split: str = "test",
    workers: int = 0,
    on_batch: Progress | None = None,
) -> Evaluation:
    """The same on images that are at hand already; `split` is what they are called."""
    if tuple(images.classes) != model.classes:
        raise UserError(_other_classes(model.classes, images.classes))
    accelerator = build_accelerator(model.config.training)
    views = Views(images, model.normalise, augment=None, seed=0)
    network = model.network.to(accelerator.device)
    predictions = evaluate(network, views, accelerator=accelerator, workers=workers, on_batch=on_batch)
    return Evaluation(split, model.classes, predictions, calibration=model.calibration)


def choose_split(splits: Splits, split: str) -> ImageData:
    if split not in SPLITS:
        raise UserError(f"--split {split}: choose one of {', '.join(SPLITS)}")
    images: ImageData = getattr(splits, split)
    return images


def _other_classes(known: Sequence[str], found: Sequence[str]) -> str:
    odd = sorted(set(known) ^ set(found))
    return (
        f"the data has {len(found)} classes, the model {len(known)}; they differ in "
        f"{', '.join(odd[:5]) or 'order'}; evaluate on data with the classes it was trained on"
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def save_evaluation(evaluation: Evaluation, folder: Path, *, data: str, network: nn.Module) -> Path:
    """Numbers as JSON, with the data and weights they are of; the confusion matrix as a picture: its path.

    Beside it lies the reliability diagram. A run that is trained on or replaced has other weights, and the
    numbers are no longer its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"data": data, "weights": weights_digest(network), **evaluation.summary()}
    write_text(folder / f"{evaluation.split}.json", json.dumps(content, indent=1, ensure_ascii=False))
    title = f"{evaluation.split}: accuracy {percent(evaluation.predictions.accuracy)}"
    picture = confusion_figure(evaluation.confusion, classes=evaluation.classes, title=title)
    path = folder / f"{evaluation.split}-confusion.png"
    save_picture(picture, path)
    title = f"{evaluation.split}: are the probabilities true?"
    if diagram := reliability_picture(content["reliability"], title=title):
        save_picture(diagram, reliability_path(folder, evaluation.split))
    return path


def reliability_path(folder: Path, split: str) -> Path:
    """Where the reliability diagram of a split lies."""
    return folder / f"{split}-reliability.png"


def measured_calibration(model: TrainedModel, evaluation: Evaluation) -> Calibration:
    """The temperature of a model, from its answers to images it was not trained on, such as validation."""
    found = evaluation.predictions
    if not len(found.labels):
        raise UserError("no images to fit the temperature to; give data with a validation split")
    return calibration_of(found.logits, found.labels, model.network)
