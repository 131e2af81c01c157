"""A trained network with its class names and prototypes: it predicts, and says by which evidence."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from dprotonet.config import Config
from dprotonet.data.base import ImageData
from dprotonet.data.transforms import Normalise, Views
from dprotonet.encoder.backbone import Backbone
from dprotonet.encoder.level_averages import Levels, every_level
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import has_several_labels
from dprotonet.experiment.build.network import build_network, build_normalise
from dprotonet.experiment.runs.calibration import (
    Calibration,
    keep_calibration,
    set_source,
    stored_calibration,
)
from dprotonet.experiment.runs.familiarity import (
    SHARE,
    Familiarity,
    familiarity_of,
    keep_familiarity,
    known_distances,
    stored_familiarity,
)
from dprotonet.experiment.runs.known_features import MeasuredFeatures, level_averages, measured_features
from dprotonet.experiment.runs.look import look
from dprotonet.experiment.runs.place import Place, places_of, region_places
from dprotonet.experiment.runs.run_folder import PrototypeRecord, RunFolder, completed
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.findings import Findings, findings_of
from dprotonet.experiment.trained.image_like import ImageLike, name_of, several, square, squares
from dprotonet.experiment.trained.part_names import PartName, read_part_names, write_part_names
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.interpretation.task import SINGLE, Task
from dprotonet.network import BlackBox, DProtoNet, Evidence, Network
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import load_weights

Module = TypeVar("Module", bound=nn.Module)


class TrainedModel:
    """A network with its config, classes and the records of its prototypes; it predicts with reasons."""

    def __init__(
        self,
        network: Network,
        *,
        config: Config,
        classes: Sequence[str],
        prototypes: Sequence[PrototypeRecord],
    ) -> None:
        self.network: Network = network.eval()
        self.config = config
        self.classes = tuple(classes)
        self.prototypes = tuple(prototypes)
        self.folder: Path | None = None
        self.familiarity: Familiarity | None = None  # from when on an image is strange to this model
        self.calibration: Calibration | None = None  # what its logits mean in per cent
        self.part_names: dict[int, PartName] = {}  # by prototype, of those that have one
        self.several_labels = has_several_labels(config.data.data)  # per image, or none
        self.task = Task("multilabel") if self.several_labels else SINGLE  # what the network's outputs mean

    @classmethod
    def load(
        cls,
        folder: str | PathLike[str],
        *,
        device: str | torch.device | None = None,
        several_labels: bool = False,
    ) -> Self:
        """A model from its run folder, on `device` (the CPU unless named).

        One whose images may have several labels is refused unless the caller says that it knows them.
        """
        run = RunFolder(Path(folder).expanduser())
        config = run.read_config()
        check_config(config)
        several = has_several_labels(config.data.data)
        if several and not several_labels:
            raise _single_only(str(run.path))
        classes, records = run.read_prototypes()
        tensors = run.read_weights(records)
        network = build_network(
            config.network,
            classes=len(classes),
            image_size=config.data.image_size,
            pretrained=False,
            masks=tensors.get("encoder.regions.masks"),
            owner=[classes.index(record.class_name) for record in records] or None,
            several=several,
        )
        load_weights(network, tensors, path=run.path / "model.safetensors")
        if len(records) != (0 if isinstance(network, BlackBox) else len(network.prototypes.vectors)):
            raise UserError(f"{run.path}: prototypes.json and model.safetensors disagree; copy the run again")
        model = cls(on_device(network, device), config=config, classes=classes, prototypes=records)
        model.prototypes = tuple(completed(records, model.places))
        model.folder = run.path
        model.part_names = read_part_names(run.path, records)
        model.familiarity = stored_familiarity(run.path, network)
        model.calibration = stored_calibration(run.path, network)
        return model

    @cached_property
    def places(self) -> tuple[Place, ...] | None:
        """Where each region lies on any image; None where it is no place or the image decides."""
        return None if isinstance(self.network, BlackBox) else region_places(self.network.encoder)

    @property
    def parts_follow(self) -> bool:
        """Whether regions are parts, whose places are found in every image anew."""
        return not isinstance(self.network, BlackBox) and hasattr(self.network.encoder.regions, "boxes")

    @property
    def prototyped(self) -> DProtoNet:
        """The network, where prototypes are asked for."""
        if isinstance(self.network, BlackBox):
            raise UserError("a black box has no prototypes; use dprotonet saliency")
        return self.network

    def check_prototypes(self) -> None:
        """An error where prototypes cannot be asked for, before any work is done."""
        _ = self.prototyped

    @property
    def has_sources(self) -> bool:
        """Whether the images that prototypes came from are known: not those of an imported run."""
        return bool(self.prototypes) and all(record.image for record in self.prototypes)

    def check_sources(self) -> None:
        """An error where the images that prototypes came from cannot be shown."""
        self.check_prototypes()
        if not self.has_sources:
            raise UserError(
                "this run was imported, the training images of its prototypes are unknown; predict without "
                "--out tells the class, and dprotonet saliency --method similarity where it looks"
            )

    @property
    def normalise(self) -> Normalise:
        return build_normalise(self.network.encoder.backbone, self.config.network.channels)

    def inputs(self, images: ImageLike | Iterable[ImageLike]) -> Tensor:
        """Images (paths, PIL images or uint8 tensors) as the network wants them, (B, C, H, W)."""
        pixels = squares(images, size=self.config.data.image_size)
        return self.normalise(pixels).to(self.network.head.weight.device)

    def pixels(self, image: ImageLike) -> Tensor:
        """An image as uint8 (3, size, size)."""
        return square(image, size=self.config.data.image_size)

    def predict(self, image: ImageLike, *, coverage: float | None = None) -> Prediction:
        """Class, probabilities and evidence of one image.

        With `coverage`, such as 0.9, also `class_set`: classes that the true one is among that often.
        """
        return self.predict_many([image], coverage=coverage)[0]

    def predict_many(
        self, images: ImageLike | Iterable[ImageLike], *, coverage: float | None = None
    ) -> list[Prediction]:
        """The same for a batch of images."""
        self.check_single()
        self.check_coverage(coverage)
        asked = several(images)
        found = zip(asked, self.answers(asked), strict=True)
        return [answer.prediction(name_of(image), coverage=coverage) for image, answer in found]

    def findings(self, images: ImageLike | Iterable[ImageLike]) -> list[Findings]:
        """Where an image may have several labels: each with its probability and evidence."""
        if not self.several_labels:
            raise UserError("this run knows one class per image: use predict")
        asked = several(images)
        return [
            findings_of(answer, name_of(image))
            for image, answer in zip(asked, self.answers(asked), strict=True)
        ]

    def check_single(self) -> None:
        """An error where an image may have several labels, for what is about its one class."""
        if self.several_labels:
            raise _single_only("" if self.folder is None else str(self.folder))

    def check_coverage(self, coverage: float | None) -> None:
        """An error where prediction sets cannot promise so much, before any work is done."""
        if coverage is not None:
            self.check_single()
            set_source(self.calibration, coverage)

    def answer(self, image: ImageLike) -> Answer:
        """One look at one image, which answers any question about its classes and prototypes."""
        return self.answers([image])[0]

    def answers(self, images: Sequence[ImageLike]) -> list[Answer]:
        """The same for a batch of images."""
        return self.answers_to(self.inputs(images)) if images else []

    @torch.no_grad()
    def answers_to(self, inputs: Tensor) -> list[Answer]:
        """The same for images as the network wants them, (B, C, H, W)."""
        seen = look(self.network, inputs, self.familiarity)
        far = [None] * len(inputs) if seen.distance is None else seen.distance.tolist()
        logits = seen.logits.cpu().double()
        if seen.evidence is None:
            nothing = torch.zeros(0, dtype=torch.float64)
            rows = zip(logits, far, strict=True)
            return [Answer(self, nothing, nothing.long(), row, distance=away) for row, away in rows]
        scores, region = seen.evidence.scores.cpu().double(), seen.evidence.region.cpu()
        columns = scores, region, logits, self._places_in(seen.feature_map), far
        return [Answer(self, *row) for row in zip(*columns, strict=True)]

    @torch.no_grad()
    def looked(self, inputs: Tensor) -> tuple[Evidence, list[Sequence[Place] | None]]:
        """Evidence of images (B, C, H, W), and in each the places of all regions, if they have some."""
        self.check_prototypes()
        seen = look(self.network, inputs, None)
        assert seen.evidence is not None
        return seen.evidence, self._places_in(seen.feature_map)

    def _places_in(self, feature_map: Tensor) -> list[Sequence[Place] | None]:
        boxes = self.prototyped.encoder.boxes_in(feature_map)
        if boxes is None:
            return [self.places] * len(feature_map)
        return [places_of(rows) for rows in boxes]

    def measured_familiarity(
        self,
        known: ImageData,
        *,
        train: ImageData | None = None,
        share: float = SHARE,
        on_progress: Progress | None = None,
    ) -> Familiarity:
        """The limits of strangeness, from images it was not trained on, such as the validation split.

        What features are known is measured on `train`, the images it was trained on; without them it is what
        the model has already.
        """
        views = Views(known, self.normalise, augment=None, seed=0)
        if not len(views) and train is None:
            raise UserError("no images to take the threshold from; give data with a validation split")
        distances = known_distances(self.network, views, on_progress=on_progress)
        if train is None and self.familiarity is not None and self.familiarity.features is not None:
            levels = self.level_distances(known, on_progress)
            return self.familiarity.remeasured(distances, self.network, share=share, levels=levels)
        measured = None if train is None else self._measured_features(train, views, on_progress)
        found = familiarity_of(distances, self.network, share=share, features=measured)
        if found is None:
            raise UserError("a black box knows features only; give the data it was trained on")
        return found

    def level_distances(self, known: ImageData, on_progress: Progress | None = None) -> Tensor | None:
        """How far images are from the features it knows, (N, L); None where it knows none."""
        features = None if self.familiarity is None else self.familiarity.features
        if features is None:
            return None
        views = Views(known, self.normalise, augment=None, seed=0)
        levels = Levels(features.taken, tuple(features.spread.widths))
        averages = level_averages(self.network, views, levels, on_progress=on_progress)
        return features.spread.distances(averages)

    def _measured_features(
        self, train: ImageData, known: Views, on_progress: Progress | None
    ) -> MeasuredFeatures | None:
        backbone = self.network.encoder.backbone
        assert isinstance(backbone, Backbone)
        levels = every_level(backbone, self.config.data.image_size)
        views = Views(train, self.normalise, augment=None, seed=0)
        averages = level_averages(self.network, views, levels, on_progress=on_progress)
        others = level_averages(self.network, known, levels, on_progress=on_progress)
        return measured_features(levels, averages, others, learned=self.config.training.mode != "frozen")

    def save(self, folder: Path) -> None:
        """Write all that loading needs into a folder, which is made if it is not there."""
        run = RunFolder(folder)
        run.path.mkdir(parents=True, exist_ok=True)
        run.write_config(self.config)
        self._copy_sources(run.path)
        run.write_model(self.network, self.prototypes, self.classes)
        keep_familiarity(run.path, self.familiarity, self.network)
        keep_calibration(run.path, self.calibration, self.network)
        if self.part_names:
            write_part_names(run.path, self.part_names, self.prototypes)

    def _copy_sources(self, target: Path) -> None:
        if self.folder is None or self.folder.resolve() == target.resolve():
            return
        (target / "prototypes").mkdir(exist_ok=True)
        for name in {record.image for record in self.prototypes if record.image}:
            (target / name).write_bytes((self.folder / name).read_bytes())


def _single_only(name: str) -> UserError:
    return UserError(
        f"{name or 'this run'} knows several labels per image, and this is for one class per image; for such "
        "runs there are evaluate, predict, explain, saliency, familiarity, and in Python model.findings and "
        "model.explain_findings (docs/labels.md)"
    )


def on_device(network: Module, device: str | torch.device | None) -> Module:
    """The network, moved to `device` (the CPU unless named)."""
    try:
        return network.to(device or "cpu")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {device} cannot be used ({reason}); leave it out for the CPU") from None
