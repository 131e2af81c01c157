"""A trained network with its class names and prototypes: it predicts, and says by which evidence."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from dprotonet.config import Config
from dprotonet.data.base import ImageData
from dprotonet.data.transforms import Normalise, Views
from dprotonet.errors import UserError
from dprotonet.experiment.build.network import build_network, build_normalise
from dprotonet.experiment.runs.familiarity import (
    SHARE,
    Familiarity,
    familiarity_of,
    keep_familiarity,
    known_distances,
    stored_familiarity,
    warning_of,
)
from dprotonet.experiment.runs.place import Place, places_of, region_places
from dprotonet.experiment.runs.run_folder import PrototypeRecord, RunFolder, completed
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.trained.evidence import EvidenceItem, contrast_in, evidence_items
from dprotonet.experiment.trained.image_like import ImageLike, name_of, square
from dprotonet.experiment.trained.part_names import PartName, read_part_names, write_part_names
from dprotonet.figures.prediction_html import PointsRow, prediction_html
from dprotonet.network import BlackBox, DProtoNet, Evidence, Network
from dprotonet.training.checkpoint import load_weights

Module = TypeVar("Module", bound=nn.Module)

_LIKELY = 3  # classes named in a notebook


@dataclass(frozen=True)
class Prediction:
    """What the network says of one image, and why. The contributions of all evidence sum to `logit`.

    A black box gives no evidence, nor does it know what is familiar.
    """

    name: str
    class_name: str
    label: int
    probability: float
    probabilities: Mapping[str, float]
    logit: float
    evidence: tuple[EvidenceItem, ...]  # of every prototype, what decides most first
    familiar: bool | None = None  # False: nothing here looks like what the run knows; None: it cannot tell
    distance: float | None = None  # from what the run knows; above 1 an image is not familiar

    def _repr_html_(self) -> str:
        """As a notebook shows it: the class, and the points that make its logit."""
        return prediction_html(
            self.class_name,
            caption=Path(self.name).name,
            probabilities=sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:_LIKELY],
            rows=[
                PointsRow(
                    f"{item.class_name} #{item.prototype}{item.part and f', {item.part}'}",
                    item.source,
                    item.similarity,
                    item.weight,
                    item.contribution,
                )
                for item in self.evidence
            ],
            logit=self.logit,
            warning=warning_of(self.distance),
        )


def prediction_of(
    name: str,
    logits: Tensor,
    evidence: tuple[EvidenceItem, ...],
    *,
    classes: Sequence[str],
    distance: float | None = None,
) -> Prediction:
    """The prediction of the image `name` from its logits (C,) and what every prototype says for its class."""
    label, probabilities = int(logits.argmax()), logits.softmax(dim=0)
    said = math.fsum(item.contribution for item in evidence)
    return Prediction(
        name=name,
        class_name=classes[label],
        label=label,
        probability=float(probabilities[label]),
        probabilities=dict(zip(classes, probabilities.tolist(), strict=True)),
        logit=said if evidence else float(logits[label]),
        evidence=evidence,
        familiar=None if distance is None else distance <= 1,
        distance=distance,
    )


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
        self.part_names: dict[int, PartName] = {}  # by prototype, of those that have one

    @classmethod
    def load(cls, folder: str | PathLike[str], *, device: str | torch.device | None = None) -> Self:
        """A model from its run folder, on `device` (the CPU unless named)."""
        run = RunFolder(Path(folder).expanduser())
        config = run.read_config()
        check_config(config)
        classes, records = run.read_prototypes()
        tensors = run.read_weights(records)
        network = build_network(
            config.network,
            classes=len(classes),
            image_size=config.data.image_size,
            pretrained=False,
            masks=tensors.get("encoder.regions.masks"),
            owner=[classes.index(record.class_name) for record in records] or None,
        )
        load_weights(network, tensors, path=run.path / "model.safetensors")
        if len(records) != (0 if isinstance(network, BlackBox) else len(network.prototypes.vectors)):
            raise UserError(f"{run.path}: prototypes.json and model.safetensors disagree; copy the run again")
        model = cls(on_device(network, device), config=config, classes=classes, prototypes=records)
        model.prototypes = tuple(completed(records, model.places))
        model.folder = run.path
        model.part_names = read_part_names(run.path, records)
        model.familiarity = stored_familiarity(run.path, network)
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

    def inputs(self, images: Iterable[ImageLike]) -> Tensor:
        """Images (paths, PIL images or uint8 tensors) as the network wants them, (B, C, H, W)."""
        pixels = torch.stack([self.pixels(image) for image in images])
        return self.normalise(pixels).to(self.network.head.weight.device)

    def pixels(self, image: ImageLike) -> Tensor:
        """An image as uint8 (3, size, size)."""
        return square(image, size=self.config.data.image_size)

    def predict(self, image: ImageLike) -> Prediction:
        """Class, probabilities and evidence of one image."""
        return self.predict_many([image])[0]

    @torch.no_grad()
    def predict_many(self, images: Sequence[ImageLike]) -> list[Prediction]:
        """The same for a batch of images."""
        if not images:
            return []
        if isinstance(self.network, BlackBox):
            rows = self.network(self.inputs(images)).cpu().double()
            return [
                prediction_of(name_of(image), row, (), classes=self.classes)
                for image, row in zip(images, rows, strict=True)
            ]
        evidence, places = self.looked(self.inputs(images))
        logits, scores, region = (
            evidence.logits.cpu().double(),
            evidence.scores.cpu().double(),
            evidence.region.cpu(),
        )
        far = self._strangeness(evidence.distances)
        found = []
        for row, image in enumerate(images):
            label, where = int(logits[row].argmax()), region[row].tolist()
            items = self.evidence(label, scores[row].tolist(), where, places[row])
            name = name_of(image)
            found.append(prediction_of(name, logits[row], items, classes=self.classes, distance=far[row]))
        return found

    @torch.no_grad()
    def looked(self, inputs: Tensor) -> tuple[Evidence, list[Sequence[Place] | None]]:
        """Evidence of images (B, C, H, W), and in each the places of all regions, if they have some."""
        network = self.prototyped
        feature_map = network.encoder.feature_map(inputs)
        evidence = network.evidence_of(network.encoder.regions(feature_map))
        boxes = network.encoder.boxes_in(feature_map)
        if boxes is None:
            return evidence, [self.places] * len(inputs)
        return evidence, [places_of(rows) for rows in boxes]

    def _strangeness(self, distances: Tensor) -> Sequence[float | None]:
        """How far each image of (B, P) is from what the run knows, where it has a threshold for that."""
        if self.familiarity is None:
            return [None] * len(distances)
        far: list[float] = self.familiarity.distance(distances).tolist()
        return far

    def evidence(
        self, label: int, scores: Sequence[float], region: Sequence[int], places: Sequence[Place] | None
    ) -> tuple[EvidenceItem, ...]:
        """What every prototype says for a class, from its score (P,) and region (P,) in the image.

        `places` are those of all regions in the image.
        """
        weights = self.network.head.weight[label].detach().cpu().double().tolist() if self.prototypes else []
        rows = [
            (score, weight, score * weight, where)
            for score, weight, where in zip(scores, weights, region, strict=True)
        ]
        said = {number: name.words for number, name in self.part_names.items()}
        contrast = contrast_in(self.network, self.classes, scores, label)
        return evidence_items(self.prototypes, rows, places=places, parts=said, contrast=contrast)

    def measured_familiarity(
        self, known: ImageData, *, share: float = SHARE, on_progress: Callable[[int, int], None] | None = None
    ) -> Familiarity:
        """The threshold of strangeness, from images it was not trained on, such as the validation split."""
        views = Views(known, self.normalise, augment=None, seed=0)
        if not len(views):
            raise UserError("no images to take the threshold from; give data with a validation split")
        distances = known_distances(self.prototyped, views, on_progress=on_progress)
        return familiarity_of(distances, self.prototyped, share=share)

    def save(self, folder: Path) -> None:
        """Write all that loading needs into a folder, which is made if it is not there."""
        run = RunFolder(folder)
        run.path.mkdir(parents=True, exist_ok=True)
        run.write_config(self.config)
        self._copy_sources(run.path)
        run.write_model(self.network, self.prototypes, self.classes)
        keep_familiarity(run.path, self.familiarity, self.network)
        if self.part_names:
            write_part_names(run.path, self.part_names, self.prototypes)

    def _copy_sources(self, target: Path) -> None:
        if self.folder is None or self.folder.resolve() == target.resolve():
            return
        (target / "prototypes").mkdir(exist_ok=True)
        for name in {record.image for record in self.prototypes if record.image}:
            (target / name).write_bytes((self.folder / name).read_bytes())


def on_device(network: Module, device: str | torch.device | None) -> Module:
    """The network, moved to `device` (the CPU unless named)."""
    try:
        return network.to(device or "cpu")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {device} cannot be used ({reason}); leave it out for the CPU") from None
