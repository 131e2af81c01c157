"""What an exported file says of itself: classes, image size, prototypes, from when on an image is strange.

The same JSON lies in the ONNX file's metadata (key `dprotonet`), in the .pt2 file's extra files, and beside
both. Source images are not in it: they stay in the run folder.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dprotonet.errors import UserError
from dprotonet.experiment.runs.calibration import Calibration, checked
from dprotonet.experiment.runs.familiarity import Familiarity
from dprotonet.experiment.runs.familiarity import checked as checked_familiarity
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.trained.evidence import part_of_each
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.transfer.export.deployed import Deployed
from dprotonet.files import json_of
from dprotonet.version import __version__

KEY = "dprotonet"
FORMAT = 1


@dataclass(frozen=True)
class PrototypeName:
    """A prototype's class, the training image it came from, its place there, and what its part is called."""

    class_name: str
    source: str
    place: Place | None = None
    sources: tuple[str, ...] = ()
    part: str = ""


@dataclass(frozen=True)
class Card:
    """All that a program needs beside the tensors. `mean` and `std` are told, not to be applied again."""

    network: str
    classes: tuple[str, ...]
    image_size: int
    channels: int  # the network's own; images are always RGB
    mean: tuple[float, ...]
    std: tuple[float, ...]
    outputs: tuple[str, ...]
    prototypes: tuple[PrototypeName, ...]
    familiarity: Familiarity | None
    places: tuple[Place, ...] = ()  # of the regions that `region` counts; none where they have none
    calibration: Calibration | None = None  # that `probabilities` are made by; None: their softmax
    parts: bool = False  # whether regions are parts: `region` is a prototype's part, and leads are known
    version: str = __version__
    input: str = "images: float32 (batch, 3, size, size), RGB in [0, 1], squashed to the square"

    @classmethod
    def of(cls, model: TrainedModel, deployed: Deployed) -> "Card":
        return cls(
            network=model.config.network.network,
            classes=model.classes,
            image_size=model.config.data.image_size,
            channels=deployed.channels,
            mean=tuple(deployed.mean.flatten().tolist()),
            std=tuple(deployed.std.flatten().tolist()),
            outputs=deployed.outputs,
            prototypes=tuple(_prototype(model, number) for number in range(len(model.prototypes))),
            familiarity=_without_tensors(model.familiarity),
            calibration=model.calibration,
            places=model.places or (),
            parts=part_of_each(model.network) is not None,
        )

    def to_json(self) -> str:
        known = None if self.familiarity is None else self.familiarity.facts()
        content = {**asdict(self), "familiarity": known}
        return json.dumps({"format": FORMAT, **content}, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str, *, where: str) -> "Card":
        """Read what `to_json` wrote; nothing in it is trusted."""
        try:
            content = json_of(text)
            if content.pop("format") != FORMAT:
                raise ValueError("another format")
            return _checked(cls(**_typed(content)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{where} was not exported by this version ({error}); export it again") from None


def _without_tensors(known: Familiarity | None) -> Familiarity | None:
    """The program itself has the features that images are compared with."""
    return None if known is None else replace(known, features=None)


def _prototype(model: TrainedModel, number: int) -> PrototypeName:
    record, name = model.prototypes[number], model.part_names.get(number)
    part = "" if name is None else name.words
    return PrototypeName(record.class_name, record.source, record.place, record.sources, part)


def _typed(content: dict[str, Any]) -> dict[str, Any]:
    names = ("classes", "mean", "std", "outputs")
    return {
        **content,
        **{name: tuple(content[name]) for name in names},
        "prototypes": tuple(_typed_prototype(item) for item in content["prototypes"]),
        "places": tuple(map(Place.from_json, content.get("places", ()))),
        "familiarity": checked_familiarity(Familiarity(**told)) if (told := content["familiarity"]) else None,
        "calibration": checked(Calibration(**told)) if (told := content.get("calibration")) else None,
    }


def _typed_prototype(item: dict[str, Any]) -> PrototypeName:
    place = item.get("place")
    known = {"place": None if place is None else Place.from_json(place)}
    return PrototypeName(**{**item, **known, "sources": tuple(item.get("sources", ()))})


def _checked(card: Card) -> Card:
    words = [*card.classes, *card.outputs, *(item.class_name for item in card.prototypes)]
    words += [word for item in card.prototypes for word in (item.source, item.part, *item.sources)]
    if not all(isinstance(word, str) for word in words) or len(card.classes) < 2:
        raise ValueError("classes, outputs and prototypes must be named")
    if type(card.parts) is not bool:
        raise ValueError("parts must be true or false")
    if card.channels not in (1, 3) or len(card.mean) != card.channels or len(card.std) != card.channels:
        raise ValueError("mean and std must be one number for each channel")
    if not all(math.isfinite(value) for value in (*card.mean, *card.std)) or min(card.std) <= 0:
        raise ValueError("mean and std must be finite numbers, std above 0")
    if type(card.image_size) is not int or not 1 <= card.image_size <= 8192:
        raise ValueError("image_size must be a number of pixels")
    if card.familiarity is not None and card.familiarity.features is not None:
        raise ValueError("features are in the program, not in the card")
    return card
