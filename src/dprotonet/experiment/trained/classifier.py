"""A network to be explained, by what a user calls it: `timm:NAME[:WEIGHTS]`, or a run folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.data.transforms import Normalise
from dprotonet.encoder.backbone import BackboneSpec
from dprotonet.encoder.classifier import load_classifier
from dprotonet.errors import UserError
from dprotonet.experiment.runs.calibration import Calibration
from dprotonet.experiment.runs.familiarity import Familiarity
from dprotonet.experiment.trained.image_like import ImageLike, squares
from dprotonet.experiment.trained.trained_model import TrainedModel, on_device
from dprotonet.experiment.trained.versus import class_number


@dataclass(frozen=True)
class Classifier:
    """A network from images to logits, its class names, and the images it wants."""

    name: str
    module: nn.Module
    classes: tuple[str, ...]
    size: int
    normalise: Normalise
    familiarity: Familiarity | None = None  # from when on an image is strange to it, where it can tell
    calibration: Calibration | None = None  # what its logits mean in per cent, where that was fitted

    @classmethod
    def open(cls, name: str | PathLike[str], *, device: str | torch.device | None = None) -> "Classifier":
        """`timm:NAME[:WEIGHTS]` with its own classifier, or the folder of a trained DProtoNet."""
        text = str(name)
        if text.startswith("timm:"):
            return cls._of_timm(BackboneSpec.parse(text), device)
        if not Path(text).expanduser().is_dir():
            raise UserError(
                f"{text} is not a run folder; for a timm model write timm:NAME or timm:NAME:WEIGHTS"
            )
        return cls.of_model(TrainedModel.load(text, device=device), name=text)

    @classmethod
    def of(cls, given: "Classifier | TrainedModel | str | PathLike[str]") -> "Classifier":
        """However a user has it: opened already, the model of a run, or a name to `open`."""
        if isinstance(given, cls):
            return given
        if isinstance(given, TrainedModel):
            return cls.of_model(given)
        if isinstance(given, str | PathLike):
            return cls.open(given)
        raise UserError(
            f"a classifier is what dp.classifier or dp.load opens, or its name, not {type(given).__name__}; "
            "any module is explained by dp.MDM(module)"
        )

    @classmethod
    def of_model(cls, model: TrainedModel, *, name: str = "DProtoNet") -> "Classifier":
        """A trained DProtoNet as an ordinary classifier."""
        size = model.config.data.image_size
        known = model.familiarity, model.calibration
        return cls(name, model.network, model.classes, size, model.normalise, *known)

    @classmethod
    def _of_timm(cls, spec: BackboneSpec, device: str | torch.device | None) -> "Classifier":
        found = load_classifier(spec)
        normalise = Normalise(found.mean, found.std, channels=found.channels)
        names = _names(found.module, found.classes)
        return cls(str(spec), on_device(found.module, device), names, found.size, normalise)

    def inputs(self, images: ImageLike | Iterable[ImageLike]) -> Tensor:
        """Images as the network wants them, (B, C, H, W), squashed to its own size."""
        return self.normalise(squares(images, size=self.size)).to(next(self.module.parameters()).device)

    def label(self, target: str | int) -> int:
        """The number of a class, by its number or its name."""
        return class_number(target, self.classes, owner=self.name)


def _names(module: nn.Module, count: int) -> tuple[str, ...]:
    """What ImageNet calls the classes, where the model's are ImageNet's."""
    data = import_guarded("timm.data")
    subset = data.infer_imagenet_subset(module)
    if subset is None:
        return tuple(f"class {number}" for number in range(count))
    info = data.ImageNetInfo(subset)
    return tuple(info.index_to_description(number) for number in range(count))
