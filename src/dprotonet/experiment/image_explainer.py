"""A network and an explainer in one object: `dp.explainer(NAME)(images)`."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explanation_files import save_saliency
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.explaining.saliency import TOP, Saliency, saliency, saliency_picture
from dprotonet.experiment.model import Model
from dprotonet.experiment.trained.arrays import as_images
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.trained.versus import ClassName
from dprotonet.interpretation.explainers import explainer_entry
from dprotonet.interpretation.mdm import Preset


@dataclass(frozen=True, eq=False)
class ExplainedImage(Saliency):
    """Why an image was given its class: `class_name`, `probability`, `heatmap`, and files of all of it."""

    model: str = ""
    method: str = ""

    def save(self, folder: str | PathLike[str]) -> Path:
        """Maps as .npy, pictures and a sheet as .png, the rest as explanation.json."""
        place = Path(folder).expanduser()
        save_saliency(self, place, model=self.model, method=self.method)
        save_picture(saliency_picture([self]), place / "sheet.png")
        return place


@dataclass(frozen=True)
class ImageExplainer:
    """Explains images with one network and one method; made by `dp.explainer`."""

    classifier: Classifier
    method: str = "mdm"
    preset: str | Preset = "fast"

    @property
    def classes(self) -> tuple[str, ...]:
        return self.classifier.classes

    def __call__(
        self,
        images: object,
        *,
        target: ClassName | Sequence[ClassName] | None = None,
        versus: ClassName | None = None,
        top: int = TOP,
    ) -> list[ExplainedImage]:
        """Explanations of a path, PIL image, tensor or array, or of several; always a list.

        Each is of the predicted class, or of `target`; with `versus` of what speaks for it rather than that.
        """
        found = saliency(
            self.classifier,
            as_images(images),
            method=self.method,
            preset=self.preset,
            target=target,
            versus=versus,
            top=top,
        )
        name = self.classifier.name
        return [ExplainedImage(**vars(item), model=name, method=self.method) for item in found]


def explainer(
    model: Classifier | TrainedModel | str | PathLike[str],
    *,
    method: str = "mdm",
    preset: str | Preset = "fast",
    device: str | torch.device | None = None,
    classes: Sequence[str] = (),
    revision: str | None = None,
) -> ImageExplainer:
    """A network and an explainer in one: `explain = dp.explainer("timm:resnet50")`, `explain("cat.jpg")`.

    The network is `timm:NAME[:WEIGHTS]`, a run folder, a model of the hub by its name `OWNER/NAME` (also with
    a `revision`), or one that is opened already. `method` is any explainer of `dprotonet compare`; `classes`
    name those of a timm model, which otherwise have ImageNet's names, or numbers.
    """
    explainer_entry(method)  # an unknown one is better found before a download
    opened = _opened(model, device, classes, revision)
    return ImageExplainer(opened, method, preset)


def _opened(
    model: Classifier | TrainedModel | str | PathLike[str],
    device: str | torch.device | None,
    classes: Sequence[str],
    revision: str | None,
) -> Classifier:
    if isinstance(model, str | PathLike) and str(model).startswith("timm:"):
        if revision is not None:
            raise UserError(f"{model} has no revisions; they are for models of the hub, OWNER/NAME")
        return Classifier.open(model, device=device, classes=classes)
    if classes:
        raise UserError("classes are for a network timm:NAME:WEIGHTS; others name their own")
    if not isinstance(model, str | PathLike):
        if revision is not None or device is not None:
            raise UserError("a network that is opened already has its revision and its device")
        return Classifier.of(model)
    place = model if isinstance(model, str) else Path(model)
    found = Model.from_pretrained(place, revision=revision, device=device)
    return Classifier.of_model(found, name=str(model))
