"""How good a run is where images may have several labels: label by label, and the mean over labels."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData
from dprotonet.data.transforms import Views
from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.build.data import build_splits, has_rows
from dprotonet.experiment.build.training import build_accelerator
from dprotonet.experiment.evaluation.evaluation import choose_split
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.files import write_text
from dprotonet.metrics.classification import auroc, auroc_interval
from dprotonet.metrics.several_labels import (
    average_precision,
    f1_score,
    label_accuracy,
    mean_average_precision,
)
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import weights_digest
from dprotonet.training.evaluation import Predictions, evaluate


@dataclass(frozen=True)
class LabelEvaluation:
    """Results on one split; logits and labels of its predictions are (N, L)."""

    split: str
    classes: Sequence[str]
    predictions: Predictions

    def __post_init__(self) -> None:
        broken = (~self.predictions.logits.isfinite().all(dim=1)).nonzero().flatten().tolist()
        if broken:
            raise ComputationError(
                f"the logits of {len(broken)} images ({self.split}) are not finite, first image {broken[0]}"
            )

    def summary(self) -> dict[str, Any]:
        """Plain numbers; None where a measure is undefined. `chance` is what the frequencies alone give."""
        logits, labels = self.predictions.logits.double(), self.predictions.labels
        each = {name: label_summary(logits[:, k], labels[:, k] > 0) for k, name in enumerate(self.classes)}
        frequency = [one["frequency"] for one in each.values() if one["images_with"]]
        return {
            "split": self.split,
            "task": "multilabel",
            "images": len(labels),
            "mean_average_precision": _number(mean_average_precision(logits, labels)),
            "mean_auroc": _mean([one["auroc"] for one in each.values()]),
            "mean_f1": _mean([one["f1"] for one in each.values()]),
            "label_accuracy": _number(label_accuracy(logits, labels)),
            "all_labels_right": _number(((logits > 0) == (labels > 0)).all(dim=1).double().mean().item()),
            "chance": {"mean_average_precision": _mean(frequency), "mean_auroc": 0.5},
            "per_label": each,
        }


def label_summary(logits: Tensor, having: Tensor) -> dict[str, Any]:
    """Of one label: logits (N,), and which images have it (N,)."""
    hits, misses = int(having.sum()), int((~having).sum())
    area = auroc(logits, having)
    low, high = auroc_interval(area, hits, misses)
    return {
        "images_with": hits,
        "frequency": hits / max(len(having), 1),
        "average_precision": _number(average_precision(logits, having)),
        "auroc": _number(area),
        "auroc_low": _number(low),
        "auroc_high": _number(high),
        "f1": _number(f1_score(logits > 0, having)),
        "found": _number(float((logits > 0)[having].double().mean()) if hits else math.nan),
        "rightly_denied": _number(float((logits <= 0)[~having].double().mean()) if misses else math.nan),
    }


def evaluate_labels(
    model: TrainedModel,
    data: DataConfig,
    *,
    split: str = "test",
    workers: int = 0,
    on_scan: Progress | None = None,
    on_batch: Progress | None = None,
) -> LabelEvaluation:
    """Run the model over a split of a data set that has the labels it was trained on."""
    images = choose_split(build_splits(data, on_scan), split)
    return evaluate_label_images(model, images, split=split, workers=workers, on_batch=on_batch)


def evaluate_label_images(
    model: TrainedModel,
    images: ImageData,
    *,
    split: str = "test",
    workers: int = 0,
    on_batch: Progress | None = None,
) -> LabelEvaluation:
    """The same on images that are at hand already."""
    if not has_rows(images) or tuple(images.classes) != model.classes:
        raise UserError(
            f"the run knows the labels {', '.join(model.classes)}, and the data has "
            f"{', '.join(images.classes)}; evaluate on data with the labels it was trained on, in their order"
        )
    accelerator = build_accelerator(model.config.training)
    views = Views(images, model.normalise, augment=None, seed=0)
    network = model.network.to(accelerator.device)
    predictions = evaluate(network, views, accelerator=accelerator, workers=workers, on_batch=on_batch)
    return LabelEvaluation(split, model.classes, predictions)


def save_label_evaluation(
    evaluation: LabelEvaluation, folder: Path, *, data: str, network: nn.Module
) -> Path:
    """Numbers as JSON, with the data and weights they are of: its path."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"data": data, "weights": weights_digest(network), **evaluation.summary()}
    path = folder / f"{evaluation.split}.json"
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))
    return path


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
