"""A network to be explained, by what a user calls it: `timm:NAME[:WEIGHTS]`, or a run folder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.data.transforms import Normalise
from dprotonet.encoder.backbone import BackboneSpec
from dprotonet.encoder.classifier import load_classifier
from dprotonet.errors import UserError
from dprotonet.experiment.runs.calibration import Calibration, shares_of
from dprotonet.experiment.runs.familiarity import Familiarity
from dprotonet.experiment.trained.image_like import ImageLike, squares
from dprotonet.experiment.trained.trained_model import TrainedModel, on_device
from dprotonet.experiment.trained.versus import class_number
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.nodes import precision
from dprotonet.interpretation.outputs import GivenTask, Outputs
from dprotonet.interpretation.returned import Answering, OutputName
from dprotonet.interpretation.task import SINGLE, Task


@dataclass(frozen=True)
class Classifier:
    """A network from images to outputs, what they mean, its class names, and the images it wants.

    Classes are those of the `task`: of a network with one output two, of a regression `up` and `down`.
    """

    name: str
    module: nn.Module
    classes: tuple[str, ...]
    size: int
    normalise: Normalise
    familiarity: Familiarity | None = None  # from when on an image is strange to it, where it can tell
    calibration: Calibration | None = None  # what its logits mean in per cent, where that was fitted
    task: Task = SINGLE

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", self.task.names(self.classes))

    @classmethod
    def open(
        cls,
        name: str | PathLike[str],
        *,
        device: str | torch.device | None = None,
        task: GivenTask = None,
        classes: Sequence[str] = (),
    ) -> "Classifier":
        """`timm:NAME[:WEIGHTS]` with its own classifier, or the folder of a trained DProtoNet.

        `classes` are the names of a timm model's; without them they are ImageNet's, or numbers.
        """
        text = str(name)
        if text.startswith("timm:"):
            return cls._of_timm(BackboneSpec.parse(text), device, task, classes)
        if classes:
            raise UserError(f"{text} names its classes itself; names are for a network timm:NAME:WEIGHTS")
        if not Path(text).expanduser().is_dir():
            raise UserError(
                f"{text} is not a run folder; for a timm model write timm:NAME or timm:NAME:WEIGHTS"
            )
        found = cls.of_model(TrainedModel.load(text, device=device, several_labels=True), name=text)
        if task not in (None, found.task.kind, found.task):
            raise UserError(f"{text} was trained here: its task is '{found.task.kind}', not {task}")
        return found

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
        return cls(name, model.network, model.classes, size, model.normalise, *known, task=model.task)

    @classmethod
    def of_module(
        cls,
        module: nn.Module,
        classes: Sequence[str] = (),
        *,
        size: int,
        normalise: Normalise,
        task: GivenTask = None,
        output: OutputName = None,
        name: str = "",
    ) -> "Classifier":
        """Any network of images (B, channels, size, size); a task that is not given a blank image tells.

        Without names classes are numbered. A binary network may name its class 1 only. Of several tensors
        that it returns, `output` names the answer.
        """
        title = name or type(module).__name__
        module = module if output is None else Answering(module, output)
        outputs = Outputs(module, task, classes=classes)
        device = next((item.device for item in module.parameters()), None)
        blank = torch.zeros(1, normalise.channels, size, size, dtype=precision(module), device=device)
        with borrowed(module), torch.no_grad():
            given = outputs.raw(blank)
        known = cast(Task, outputs.task)
        count = known.columns(given).shape[1]
        names = known.names(tuple(classes) or tuple(f"class {number}" for number in range(count)))
        if len(names) != count:
            raise UserError(f"{len(classes)} classes are named, and the network has {count}")
        return cls(title, module, names, size, normalise, task=known)

    @classmethod
    def _of_timm(
        cls, spec: BackboneSpec, device: str | torch.device | None, task: GivenTask, classes: Sequence[str]
    ) -> "Classifier":
        found = load_classifier(spec)
        normalise = Normalise(found.mean, found.std, channels=found.channels)
        module = on_device(found.module, device)
        names = tuple(classes) or _names(module)
        return cls.of_module(module, names, size=found.size, normalise=normalise, task=task, name=str(spec))

    def inputs(self, images: ImageLike | Iterable[ImageLike]) -> Tensor:
        """Images as the network wants them, (B, C, H, W), squashed to its own size."""
        return self.normalise(squares(images, size=self.size)).to(next(self.module.parameters()).device)

    def watched(self, outputs: Tensor) -> Tensor:
        """Probabilities of all classes (B, C) in float64, calibrated where known; or a value up and down."""
        self.task.check(outputs)
        wide = outputs.cpu().double()  # not every device has double precision
        return self.task.watched(wide) if self.calibration is None else shares_of(wide, self.calibration)

    def label(self, target: str | int) -> int:
        """The number of a class, by its number or its name."""
        if self.task.kind == "regression" and target not in self.classes:
            raise UserError(f"{self.name} is a regression: its value is explained up or down, not '{target}'")
        return class_number(target, self.classes, owner=self.name)


def _names(module: nn.Module) -> tuple[str, ...]:
    """What ImageNet calls the classes, where the model's are ImageNet's; else none."""
    data = import_guarded("timm.data")
    subset = data.infer_imagenet_subset(module)
    if subset is None:
        return ()
    info = data.ImageNetInfo(subset)
    return tuple(info.index_to_description(number) for number in range(info.num_classes()))
