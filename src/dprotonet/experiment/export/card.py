"""What an exported file says of itself: classes, image size, prototypes, from when on an image is strange.

The same JSON lies in the ONNX file's metadata (key `dprotonet`), in the .pt2 file's extra files, and beside
both. Source images are not in it: they stay in the run folder.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from dprotonet import __version__
from dprotonet.errors import UserError
from dprotonet.experiment.export.deployed import Deployed
from dprotonet.experiment.familiarity import Familiarity
from dprotonet.experiment.model import Model

KEY = "dprotonet"
FORMAT = 1


@dataclass(frozen=True)
class PrototypeName:
    """A prototype's class and the training image it came from."""

    class_name: str
    source: str


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
    version: str = __version__
    input: str = "images: float32 (batch, 3, size, size), RGB in [0, 1], squashed to the square"

    @classmethod
    def of(cls, model: Model, deployed: Deployed) -> "Card":
        return cls(
            network=model.config.network.network,
            classes=model.classes,
            image_size=model.config.data.image_size,
            channels=deployed.channels,
            mean=tuple(deployed.mean.flatten().tolist()),
            std=tuple(deployed.std.flatten().tolist()),
            outputs=deployed.outputs,
            prototypes=tuple(PrototypeName(item.class_name, item.source) for item in model.prototypes),
            familiarity=model.familiarity,
        )

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str, *, where: str) -> "Card":
        """Read what `to_json` wrote; nothing in it is trusted."""
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise ValueError("another format")
            return _checked(cls(**_typed(content)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{where} was not exported by this version ({error}); export it again") from None


def _typed(content: dict[str, Any]) -> dict[str, Any]:
    names = ("classes", "mean", "std", "outputs")
    return {
        **content,
        **{name: tuple(content[name]) for name in names},
        "prototypes": tuple(PrototypeName(**item) for item in content["prototypes"]),
        "familiarity": Familiarity(**content["familiarity"]) if content["familiarity"] else None,
    }


def _checked(card: Card) -> Card:
    words = [*card.classes, *card.outputs, *(item.class_name for item in card.prototypes)]
    words += [item.source for item in card.prototypes]
    if not all(isinstance(word, str) for word in words) or len(card.classes) < 2:
        raise ValueError("classes, outputs and prototypes must be named")
    if card.channels not in (1, 3) or len(card.mean) != card.channels or len(card.std) != card.channels:
        raise ValueError("mean and std must be one number for each channel")
    if not all(math.isfinite(value) for value in (*card.mean, *card.std)) or min(card.std) <= 0:
        raise ValueError("mean and std must be finite numbers, std above 0")
    if type(card.image_size) is not int or not 1 <= card.image_size <= 8192:
        raise ValueError("image_size must be a number of pixels")
    if card.familiarity is not None and not card.familiarity.threshold > 0:
        raise ValueError("the threshold must be above 0")
    return card
