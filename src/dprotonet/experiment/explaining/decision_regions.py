"""Decision regions of a run on some images of a data set, as the paper shows them: a picture and numbers.

    found = decision_regions("runs/chest", images=12, node="prototype")
    found.save("regions")        # decision-regions.png, decision-regions.json

Images are drawn by seed, spread over the classes, those with a truth first. MDM explains the predicted class,
or the prototype that says most for it. How truth is drawn: where it came as boxes, the true ones red and the
found one yellow; where it is a mask, outlined; for birds and cars not at all. An image without truth is drawn
without it and counted.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from PIL import Image
from torch import Tensor

from dprotonet.data.base import ImageData, Sample
from dprotonet.data.box import pixel_box
from dprotonet.data.listed import ListedImages
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.explaining.explainers import row_node
from dprotonet.experiment.explaining.pictures import drawn_truth, save_picture
from dprotonet.experiment.explaining.progress import StepCounter
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import DecisionRegion, GridAnswer, decision_regions_sheet
from dprotonet.files import write_text
from dprotonet.interpretation.base import Box, Explanation
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.interpretation.nodes import ClassNode, Node
from dprotonet.metrics.localization import energy_share, largest_part, overlap
from dprotonet.percent import percent

NAME = "decision-regions"
WHOLE_OBJECTS = ("birds", "cub", "cub-cropped", "cars")
"""Data whose truth is the whole object: the paper shows its heatmaps alone."""
_LOOK = 20  # so many times the images wanted are looked at for a truth, before images without one are taken
_BLOCK = 16  # images explained at a time: bounds the memory

_WATCHED = {
    "class": "what keeps the predicted class likely",
    "prototype": "what the prototype that says most for the prediction sees",
}

NodeWord = Literal["class", "prototype"]
TruthWord = Literal["auto", "drawn", "none"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Decided:
    """One image: what it was taken for, and where that was decided."""

    sample: Sample
    prediction: Prediction
    explanation: Explanation
    true_class: str | None  # None where data and run have other classes

    @property
    def right(self) -> bool | None:
        return None if self.true_class is None else self.true_class == self.prediction.class_name

    @property
    def box(self) -> Box | None:
        """The found one: the smallest rectangle round the largest connected part of the binary mask M^b.

        None where that is empty.
        Unstated: what the paper's box of a found lesion goes round. Round all of M^b it would fill the
        picture as soon as two far corners are hot, as happens in chest X-rays.
        """
        return _round(largest_part(self.explanation.binary_mask.cpu()))

    @property
    def truth(self) -> Tensor | None:
        """The localisation truth (H, W), None if there is none or an empty one."""
        truth = self.sample.truth
        return truth if truth is not None and bool(truth.any()) else None

    @property
    def true_boxes(self) -> tuple[Box, ...]:
        """The boxes that the truth came as, or the one round its mask."""
        if self.truth is None:
            return ()
        if self.sample.truth_is_boxes:
            return tuple(Box(*pixel_box(box, self.truth.shape[-1])) for box in self.sample.boxes)
        box = _round(self.truth)
        return () if box is None else (box,)

    @property
    def iou(self) -> float | None:
        """Of the found box and all true boxes together, by pixels; None without truth."""
        if self.truth is None:
            return None
        size = self.truth.shape
        return float(
            overlap(_area([self.box] if self.box else [], size), _area(self.true_boxes, size)).iou[0]
        )

    @property
    def heat_inside(self) -> float | None:
        """Share of the heat that lies inside the truth; None without truth."""
        if self.truth is None:
            return None
        return float(energy_share(self.explanation.heatmap.cpu()[None], self.truth[None])[0])

    def summary(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {
            "image": self.sample.name,
            "predicted": self.prediction.class_name,
            "probability": self.prediction.probability,
            "true class": self.true_class,
            "node": self.explanation.node,
            "truth": None if self.truth is None else "boxes" if self.sample.truth_is_boxes else "mask",
            "found box": self.box._asdict() if self.box else None,
            "true boxes": [box._asdict() for box in self.true_boxes],
            "iou": self.iou,
            "heat inside truth": self.heat_inside,
        }

    def drawn(self, *, truth: bool) -> DecisionRegion:
        """As the sheet shows it."""
        answer = f"{self.prediction.class_name} {percent(self.prediction.probability, 0)}"
        file = Path(self.sample.name).name
        caption = f"it is {self.true_class} · {file}" if self.right is False else file
        boxes = truth and self.sample.truth_is_boxes and self.truth is not None
        return DecisionRegion(
            self.sample.image,
            self.explanation.heatmap.cpu(),
            GridAnswer(answer, self.right),
            caption,
            truth=drawn_truth(self.sample) if truth else None,
            box=self.box if boxes else None,
        )


@dataclass(frozen=True, eq=False)
class DecisionRegions:
    """Explained images in the order they were drawn; `facts` say how they came about."""

    images: tuple[Decided, ...]
    facts: dict[str, Any]
    truth_drawn: bool

    @property
    def without_truth(self) -> int:
        return sum(item.truth is None for item in self.images)

    def picture(self, *, title: str = "", columns: int = 3) -> Image.Image:
        """Every image beside its heatmap, so many pairs in a row."""
        shown = [item.drawn(truth=self.truth_drawn) for item in self.images]
        note = f"{_WATCHED[self.facts['node']]}, decoder {self.facts['preset']}"
        return decision_regions_sheet(
            shown, title=title, note=note, columns=columns, truth_wanted=self.truth_drawn
        )

    def summary(self) -> dict[str, Any]:
        """All numbers, means over the images that have a truth first; fit for JSON."""
        return {
            **self.facts,
            "images": len(self.images),
            "without truth": self.without_truth,
            "right": _mean([item.right for item in self.images]),
            "iou": _mean([item.iou for item in self.images]),
            "heat inside truth": _mean([item.heat_inside for item in self.images]),
            "regions": [item.summary() for item in self.images],
        }

    def save(self, folder: str | PathLike[str], *, title: str = "", columns: int = 3) -> Path:
        """decision-regions.png and decision-regions.json; gives the path of the picture."""
        path = Path(folder) / f"{NAME}.png"
        save_picture(self.picture(title=title, columns=columns), path)
        write_text(path.with_suffix(".json"), json.dumps(self.summary(), ensure_ascii=False, indent=1))
        return path


def decision_regions(
    model: TrainedModel | str | PathLike[str],
    data: ImageData | str | None = None,
    *,
    images: int = 12,
    preset: str | Preset = "fast",
    node: NodeWord = "class",
    truth: TruthWord = "auto",
    seed: int = 0,
    on_progress: Progress | None = None,
) -> DecisionRegions:
    """Explain so many images and find a box in each; `on_progress` hears of (done, total) in equal parts.

    `model` is a run folder or a loaded model; `data` a split at hand, a word as of --data, or None for the
    data of the run, both of which stand for the test split. `node` is what MDM watches: the predicted class,
    or the region of the prototype that contributes most to it. `truth`: "auto" draws it as the paper does,
    "drawn" always, "none" never.
    """
    model = model if isinstance(model, TrainedModel) else TrainedModel.load(model)
    _check(model, images=images, node=node, truth=truth)
    split, word = _split(model, data), data if isinstance(data, str) else model.config.data.data
    decoder, kind = MDM(model.network, preset=preset), word.partition(":")[0]
    samples = [split[index] for index in drawn_images(split, images, seed=seed)]
    if not samples:
        raise UserError(f"{word} has no image to explain")
    decided: list[Decided] = []
    counter, tell = StepCounter(len(samples)), on_progress or (lambda done, total: None)
    for start in range(0, len(samples), _BLOCK):
        block = samples[start : start + _BLOCK]
        watch = counter.next(len(block), lambda done, total, _: tell(done, total))
        decided += _decided(model, split.classes, block, decoder, node, watch)
    drawn = truth == "drawn" or (truth == "auto" and kind not in WHOLE_OBJECTS)
    facts = {"data": kind, "seed": seed, "node": node, "preset": decoder.name}
    return DecisionRegions(tuple(decided), facts, drawn)


def drawn_images(data: ImageData, count: int, *, seed: int = 0) -> list[int]:
    """Indices of images by seed, class after class in turn, those with a truth that is not empty first."""
    order = images_in_turn(data, seed=seed)
    known: list[int] = []
    for index in order[: _LOOK * count]:
        if len(known) == count:
            break
        if _has_truth(data, index):
            known.append(index)
    others = (index for index in order if index not in set(known))
    return known + [index for index, _ in zip(others, range(count - len(known)), strict=False)]


def images_in_turn(data: ImageData, *, seed: int = 0) -> list[int]:
    """Indices of all images, one of each class, then the next of each; the seed says which class is first."""
    shuffled = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
    piles: dict[int, list[int]] = {}
    for index in shuffled:
        piles.setdefault(data.labels[index], []).append(index)
    deepest = max(map(len, piles.values()), default=0)
    return [pile[place] for place in range(deepest) for pile in piles.values() if place < len(pile)]


def _has_truth(data: ImageData, index: int) -> bool:
    truth = data.truth(index) if isinstance(data, ListedImages) else data[index].truth
    return truth is not None and bool(truth.any())


def _split(model: TrainedModel, data: ImageData | str | None) -> ImageData:
    if data is not None and not isinstance(data, str):
        return data
    config = model.config.data
    return build_splits(config if data is None else replace(config, data=data)).test


def _decided(
    model: TrainedModel,
    classes: Sequence[str],
    samples: Sequence[Sample],
    decoder: MDM,
    node: NodeWord,
    watch: Callable[[Step], None],
) -> list[Decided]:
    pictures = [sample.image for sample in samples]
    predictions = model.predict_many(pictures)
    watched = _node(model, predictions, node, decoder)
    explanations = decoder.explain(model.inputs(pictures), watched, on_step=watch)
    known = tuple(classes) == model.classes
    return [
        Decided(sample, said, found, classes[sample.label] if known else None)
        for sample, said, found in zip(samples, predictions, explanations, strict=True)
    ]


def _node(model: TrainedModel, predictions: Sequence[Prediction], node: NodeWord, decoder: MDM) -> Node:
    if node == "class":
        labels = [prediction.label for prediction in predictions]
        return ClassNode(model.network, labels, probability=decoder.preset.probability)
    strongest = [prediction.evidence[0] for prediction in predictions]
    return row_node(
        model.prototyped,
        torch.tensor([item.region for item in strongest]),
        names=[f"prototype {item.prototype} in the image" for item in strongest],
    )


def _check(model: TrainedModel, *, images: int, node: str, truth: str) -> None:
    if images < 1:
        raise UserError(f"images is {images}; at least one has to be explained")
    for name, given, known in (("node", node, get_args(NodeWord)), ("truth", truth, get_args(TruthWord))):
        if given not in known:
            raise UserError(f"unknown {name} '{given}'; known: {', '.join(known)}")
    if node == "prototype":
        model.check_prototypes()


def _round(mask: Tensor) -> Box | None:
    """The smallest rectangle round the pixels of a mask (H, W), None if it has none."""
    rows, columns = (mask.any(dim=axis).nonzero().flatten() for axis in (1, 0))
    if not len(rows):
        return None
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _area(boxes: Sequence[Box], size: Sequence[int]) -> Tensor:
    """The pixels of all boxes together, bool (1, H, W)."""
    area = torch.zeros(1, *size, dtype=torch.bool)
    for box in boxes:
        area[:, box.top : box.bottom, box.left : box.right] = True
    return area


def _mean(values: Sequence[float | bool | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None
