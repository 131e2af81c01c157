"""Pictures of a run: its prototypes, its learning curve; and how images and places are drawn."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad

from dprotonet.data.base import Sample
from dprotonet.data.box import pixel_box
from dprotonet.data.image import UnreadableImage, read_image
from dprotonet.errors import UserError
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import placed, prototype_sheet, training_curve
from dprotonet.figures.outline import Truth, boxed
from dprotonet.files import whole

PLACED = "each picture: the place with a margin around it, and where it is in its training image"


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


def source_images(model: TrainedModel) -> Tensor:
    """The source image of every prototype (P, 3, H, W) uint8, from the run folder."""
    model.check_sources()
    files = {name: _source(model, name) for name in {record.image for record in model.prototypes}}
    return torch.stack([files[record.image] for record in model.prototypes])


def source_image(model: TrainedModel, prototype: int) -> Tensor:
    """The source image of one prototype (3, H, W) uint8, from the run folder."""
    return _source(model, model.prototypes[prototype].image)


def _source(model: TrainedModel, name: str) -> Tensor:
    if model.folder is None:
        raise UserError("this model was not loaded from a run folder, so its source images are not at hand")
    if not name:
        raise UserError("this run was imported, the training images of its prototypes are unknown")
    path = model.folder / name
    try:
        return read_image(path, size=model.config.data.image_size)
    except UnreadableImage:  # which would have the file removed
        raise UserError(
            f"{path}, from which a prototype came, is missing or damaged; copy the run again"
        ) from None


def place_picture(image: Tensor, place: Place | None, *, side: int = 256) -> Tensor:
    """The place of an image (3, H, W) uint8, large, the whole in a corner; without one the image itself."""
    if place is None:
        return image
    size = (image.shape[-2], image.shape[-1])
    return placed(image, place.shown.box(*size), at=place.box(*size), side=side)


def boxed_place(picture: Tensor, place: Place | None) -> Tensor:
    """A picture (3, H, W) uint8 with its place boxed; as it is where there is none."""
    return picture if place is None else boxed(picture, place.shown.box(*picture.shape[-2:]))


def prototypes_picture(model: TrainedModel, *, max_classes: int = 40) -> Image.Image:
    """One row a class: the places its prototypes came from, or the whole images, the weightiest first."""
    owner = model.prototyped.prototype_class.cpu()
    weights = model.prototyped.head.weight.detach().cpu()[owner, torch.arange(len(owner))]
    lies = any(record.place is not None for record in model.prototypes)
    pairs = zip(source_images(model), model.prototypes, strict=True)
    names = [model.part_names.get(record.prototype) for record in model.prototypes]
    return prototype_sheet(
        _stacked([place_picture(image, record.place) for image, record in pairs]),
        prototype_class=owner.tolist(),
        classes=model.classes,
        weights=weights.tolist(),
        captions=["" if name is None else name.words for name in names],
        note=PLACED if lies else "",
        max_classes=max_classes,
    )


def _stacked(pictures: Sequence[Tensor]) -> Tensor:
    """Pictures (3, H, W) as one tensor; boxes of whole pixels are not all of one shape, the rest is white."""
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (-2, -1))
    return torch.stack(
        [pad(one, [0, width - one.shape[-1], 0, height - one.shape[-2]], value=255) for one in pictures]
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
