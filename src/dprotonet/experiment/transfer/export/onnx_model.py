"""An exported model, run by onnxruntime: prediction, evidence, and heatmaps without gradients.

Without gradients the decoder's `sampled` preset asks how class and prototypes respond to masked images. The
file carries its card; the prototypes' source images are not in it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.explaining.explain import ExplainProgress, OnStep
from dprotonet.experiment.runs.familiarity import OF_FEATURES, warning_of
from dprotonet.experiment.trained.evidence import Contrast, EvidenceItem, evidence_items
from dprotonet.experiment.trained.image_like import ImageLike, image_size, name_of, square
from dprotonet.experiment.trained.prediction import Prediction, prediction_of
from dprotonet.experiment.transfer.export.card import KEY, Card
from dprotonet.experiment.transfer.export.deployed import STRANGENESS, Decision
from dprotonet.extras import import_extra
from dprotonet.figures import method_sheet
from dprotonet.inference.contrast import Leads, likeliest_other, shared_leads
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.column_node import ColumnNode
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.percent import percent

_BATCH = 32
_REGION = "region"
_SUMMED = ("logits", "probabilities", "contributions", "rival_contributions")
_ASKED = [("images", "tensor(float)")]
# What onnxruntime puts before the reason: its name, a code, the path again.
_BEFORE_REASON = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?")


@dataclass(frozen=True, eq=False)
class OnnxExplained:
    """A prediction with the places of its class and of its weightiest prototypes in the image."""

    image: Tensor  # (3, H, W) uint8, as it was seen
    prediction: Prediction
    whole_class: Explanation
    rows: tuple[tuple[EvidenceItem, Explanation], ...]
    image_size: tuple[int, int]  # height and width of the image itself, before it was squashed

    def picture(self, title: str = "") -> Image.Image:
        """The image beside all heatmaps, each with its points."""
        maps = {f"class {self.prediction.class_name}": self.whole_class}
        maps |= {f"{item.class_name} #{item.prototype}": found for item, found in self.rows}
        points = [f"probability {percent(self.prediction.probability)}"]
        points += [_points(item) for item, _ in self.rows]
        return method_sheet(
            self.image,
            {name: found.heatmap for name, found in maps.items()},
            title=title or self.prediction.name,
            captions=dict(zip(maps, points, strict=True)),
            notice=warning_of(self.prediction.distance),
        )


class OnnxModel:
    """Predicts and explains with an .onnx file that `dprotonet export` wrote."""

    def __init__(self, session: Any, card: Card) -> None:
        self.session, self.card = session, card

    @classmethod
    def load(cls, path: str | Path) -> "OnnxModel":
        runtime = import_extra("onnxruntime", extra="onnx", needed_for="ONNX")
        if not Path(path).is_file():
            raise UserError(f"{path} does not exist; write one with dprotonet export RUN --onnx FILE")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            text = session.get_modelmeta().custom_metadata_map.get(KEY)
        except Exception as error:  # onnxruntime's errors have no common class
            reason = _BEFORE_REASON.sub(
                "", str(error).splitlines()[0] if str(error) else type(error).__name__
            )
            raise UserError(
                f"{path} cannot be read as ONNX ({reason.rstrip('.')}); write one with dprotonet export"
            ) from None
        if text is None:
            raise UserError(
                f"{path} was not written by dprotonet export; explain such a model in Python: ArrayNode"
            )
        card = Card.from_json(text, where=str(path))
        names = {item.name for item in session.get_outputs()}
        asked = [(item.name, item.type) for item in session.get_inputs()]
        if names != set(card.outputs) or not names.issuperset(Decision._fields) or asked != _ASKED:
            raise UserError(f"{path} has other inputs or outputs than it says; export it again")
        return cls(session, card)

    def pixels(self, image: ImageLike) -> Tensor:
        """An image as uint8 (3, size, size)."""
        return square(image, size=self.card.image_size)

    def outputs(self, images: Tensor) -> dict[str, Tensor]:
        """All outputs for images (B, 3, H, W) float32 in [0, 1]."""
        try:
            pieces = [self.session.run(None, {"images": block.numpy()}) for block in images.split(_BATCH)]
            names = [item.name for item in self.session.get_outputs()]
            joined = (torch.from_numpy(np.concatenate(part)) for part in zip(*pieces, strict=True))
            found = dict(zip(names, joined, strict=True))
        except Exception as error:  # onnxruntime's errors have no common class; of a program of another kind
            reason = _BEFORE_REASON.sub(
                "", str(error).splitlines()[0] if str(error) else type(error).__name__
            )
            raise UserError(
                f"the ONNX program cannot be run ({reason.rstrip('.')}); export it again"
            ) from None
        self._check(found, len(images))
        return found

    def predict_many(self, images: Sequence[ImageLike]) -> list[Prediction]:
        """Class, probabilities and evidence of images."""
        if not images:
            return []
        found = self.outputs(torch.stack([self.pixels(image) for image in images]).float() / 255)
        return [self._prediction(name_of(image), found, row) for row, image in enumerate(images)]

    def explain(
        self,
        images: Sequence[ImageLike],
        *,
        top: int = 3,
        preset: str | Preset = "sampled",
        on_step: OnStep | None = None,
    ) -> list[OnnxExplained]:
        """Predictions with heatmaps of the class and of the `top` prototypes that decide most."""
        if top < 1:
            raise UserError(f"top is {top}; at least one prototype has to be explained")
        decoder = MDM(preset=preset, internal_batch_size=_BATCH)
        found = []
        for number, (image, prediction) in enumerate(zip(images, self.predict_many(images), strict=True)):
            watch = partial(_told, on_step, number, len(images))
            found.append(self._explained(image, prediction, prediction.evidence[:top], decoder, watch))
        return found

    def _check(self, found: dict[str, Tensor], images: int) -> None:
        """Whether the program answers as its card says."""
        for name, values in found.items():
            wide = len(self.card.classes) if name in Decision._fields else len(self.card.prototypes)
            shape = (images,) if name == STRANGENESS else (images, wide)
            if tuple(values.shape) != shape or values.is_floating_point() == (name == _REGION):
                raise UserError(f"the ONNX program gives another {name} than its card says; export it again")
            if name in _SUMMED and not values.isfinite().all():
                raise ComputationError(f"the ONNX program gives a {name} that is not finite; export it again")

    def _prediction(self, name: str, found: dict[str, Tensor], row: int) -> Prediction:
        logits, known = found["logits"][row].double(), self.card.familiarity
        tell = partial(prediction_of, classes=self.card.classes, calibration=self.card.calibration)
        far = float(found[STRANGENESS][row]) if STRANGENESS in found else None
        if "scores" not in found:
            return tell(name, logits, (), distance=far)
        if far is None and known is not None and known.statistic != OF_FEATURES:  # of an earlier version
            far = float(known.distance(found["distances"][row : row + 1]))
        said = {key: values[row] for key, values in found.items()}
        items = self._evidence(said, self._contrast(said))
        return tell(name, logits, items, distance=far)

    def _evidence(self, said: dict[str, Tensor], contrast: Contrast | None) -> tuple[EvidenceItem, ...]:
        columns = (said[name].tolist() for name in ("scores", "contributions", "region"))
        rows = [
            (score, point / score if score else 0.0, point, where)
            for score, point, where in zip(*columns, strict=True)
        ]
        known, places = self.card.prototypes, self.card.places or None
        parts = {number: item.part for number, item in enumerate(known)}
        return evidence_items(known, rows, places=places, parts=parts, contrast=contrast)

    def _contrast(self, said: dict[str, Tensor]) -> Contrast | None:
        """How far the prototypes of the predicted class lead; None without parts, and of older files."""
        if not self.card.parts or "rival_contributions" not in said:
            return None
        logits = said["logits"][None]
        label = logits.argmax(dim=1)
        rival, class_name = int(likeliest_other(logits, label)), self.card.classes[int(label)]
        apart = said["contributions"].double() - said["rival_contributions"].double()
        own = torch.tensor([item.class_name == class_name for item in self.card.prototypes])
        points = shared_leads(apart, part=said["region"], own=own)
        return Contrast(self.card.classes[rival], Leads(rival, points))

    def _explained(
        self,
        image: ImageLike,
        prediction: Prediction,
        items: tuple[EvidenceItem, ...],
        decoder: MDM,
        watch: "partial[None]",
    ) -> OnnxExplained:
        columns = [prediction.label, *(len(self.card.classes) + item.prototype for item in items)]
        names = [f"probability of {prediction.class_name}"]
        names += [f"prototype {item.prototype} in the image" for item in items]
        pixels = self.pixels(image)
        inputs = self._normalised(pixels.float() / 255).expand(len(columns), -1, -1, -1)
        maps = decoder.explain(inputs, ColumnNode(self._answers, columns, names=names), on_step=watch)
        rows = tuple(zip(items, maps[1:], strict=True))
        return OnnxExplained(pixels, prediction, maps[0], rows, image_size(image))

    def _answers(self, inputs: np.ndarray) -> np.ndarray:
        """Softmax and scores side by side, as a run's decoder watches them, for images normalised."""
        images = torch.from_numpy(inputs) * self._per_channel(self.card.std) + self._per_channel(
            self.card.mean
        )
        found = self.outputs(images)
        scores = [found["scores"]] if "scores" in found else []
        return torch.cat([found["logits"].softmax(dim=1), *scores], dim=1).numpy()

    def _normalised(self, image: Tensor) -> Tensor:
        """An image (3, H, W) in [0, 1] so that a mask of zeros gives the mean image, as with a run folder."""
        return (image - self._per_channel(self.card.mean)) / self._per_channel(self.card.std)

    def _per_channel(self, numbers: tuple[float, ...]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float32).reshape(-1, 1, 1)


def _points(item: EvidenceItem) -> str:
    """How its points come about, and beneath it how far it is ahead, if that is known."""
    points = f"{item.similarity:.3f} × {item.weight:.3f} = {item.contribution:.3f}"
    return f"{points}\n{item.ahead}" if item.ahead else points


def _told(on_step: OnStep | None, done: int, total: int, step: Step) -> None:
    if on_step is not None:
        on_step(ExplainProgress("images", done * step.total + step.number, total * step.total, step))
