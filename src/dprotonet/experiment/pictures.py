"""Pictures of a run: its prototypes, its learning curve, the evidence for a prediction."""

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.data.box import pixel_box
from dprotonet.data.image import read_image
from dprotonet.errors import UserError
from dprotonet.experiment.familiarity import warning_of
from dprotonet.experiment.image_like import ImageLike
from dprotonet.experiment.model import Model, Prediction
from dprotonet.experiment.run_folder import RunFolder
from dprotonet.figures import EvidenceRow, evidence_sheet, prototype_sheet, training_curve
from dprotonet.figures.outline import Truth
from dprotonet.files import whole


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a PNG."""
    with whole(path) as temporary:
        picture.save(temporary, format="PNG")


def drawn_truth(sample: Sample) -> Truth | None:
    """What figures draw of a sample's truth: its boxes if it came as boxes, else its mask; None if empty."""
    if sample.truth is None or not bool(sample.truth.any()):
        return None
    if sample.truth_is_boxes:
        return [pixel_box(box, sample.truth.shape[-1]) for box in sample.boxes]
    return sample.truth


def source_images(model: Model) -> Tensor:
    """The source image of every prototype (P, 3, H, W) uint8, from the run folder."""
    model.check_sources()
    if model.folder is None:
        raise UserError("this model was not loaded from a run folder, so its source images are not at hand")
    size = model.config.data.image_size
    files = {record.image: read_image(model.folder / record.image, size=size) for record in model.prototypes}
    return torch.stack([files[record.image] for record in model.prototypes])


def source_image(model: Model, prototype: int) -> Tensor:
    """The source image of one prototype (3, H, W) uint8, from the run folder."""
    if model.folder is None:
        raise UserError("this model was not loaded from a run folder, so its source images are not at hand")
    name = model.prototypes[prototype].image
    if not name:
        raise UserError("this run was imported, the training images of its prototypes are unknown")
    return read_image(model.folder / name, size=model.config.data.image_size)


def prototypes_picture(model: Model, *, max_classes: int = 40) -> Image.Image:
    """One row a class: the images its prototypes came from, the weightiest first."""
    owner = model.prototyped.prototype_class.cpu()
    weights = model.prototyped.head.weight.detach().cpu()[owner, torch.arange(len(owner))]
    return prototype_sheet(
        source_images(model),
        prototype_class=owner.tolist(),
        classes=model.classes,
        weights=weights.tolist(),
        max_classes=max_classes,
    )


def evidence_picture(
    model: Model, image: ImageLike, prediction: Prediction, *, title: str = "", rows: int = 5
) -> Image.Image:
    """An image, what it was taken for, and the prototypes that decided, adding up to the logit."""
    sources = source_images(model)
    shown = prediction.evidence[:rows]
    rest = prediction.logit - sum(item.contribution for item in shown)
    likely = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])[:4]
    return evidence_sheet(
        model.pixels(image),
        title=title or prediction.name,
        probabilities=likely,
        rows=[
            EvidenceRow(
                sources[item.prototype],
                item.class_name,
                item.prototype,
                item.similarity,
                item.weight,
                item.contribution,
            )
            for item in shown
        ],
        rest=rest,
        logit=prediction.logit,
        notice=warning_of(prediction.distance),
    )


def curve_picture(run: RunFolder) -> Image.Image:
    """Accuracy over epochs with the pushes marked, from metrics.jsonl."""
    records = run.read_metrics()
    epochs = [item for item in records if item["event"] == "EpochDone" and item["phase"] != "last"]
    pushes = [item for item in records if item["event"] == "PushDone"]
    return training_curve(
        epochs=[item["epoch"] for item in epochs],
        train=[item["train_accuracy"] for item in epochs],
        val=[item["val_accuracy"] for item in epochs],
        pushes=[item["epoch"] for item in pushes],
        before_push=[item["val_before"] for item in pushes],
        after_push=[item["val_after"] for item in pushes],
    )
