"""An image that the service has looked at: what was found, and the maps that were made of it since."""

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dprotonet.experiment.explaining.explain import ExplainedRow, Explanation
from dprotonet.experiment.explaining.pictures import boxed_place
from dprotonet.experiment.explaining.row_marks import RowMark
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.figures import ExplanationRow, explanation_sheet, overlay, picture
from dprotonet.web.store import BoundedStore

_PLACES, _MAPS = 24, 12  # kept for one image: bounds the memory
_LIKELY = 4  # classes named on a sheet


@dataclass(frozen=True, eq=False)
class Map:
    """One finished map: `raw` float32 ranks the pixels, `heatmap` float16 is in [0, 1]; both (S, S)."""

    raw: Tensor
    heatmap: Tensor
    facts: dict[str, Any]

    def npy(self) -> bytes:
        """The raw map as the bytes of an .npy file, float32."""
        stream = io.BytesIO()
        np.save(stream, self.raw.float().numpy(), allow_pickle=False)
        return stream.getvalue()


@dataclass(frozen=True, eq=False)
class RowPlace:
    """Where one prototype is seen in the image, and where it lies in its source."""

    image: Map
    source: Map
    source_image: Tensor


@dataclass(frozen=True, eq=False)
class ImageRecord:
    """One image; ids of `places` and `marks` are numbers of prototypes, of `maps` those of `map_key`."""

    name: str
    pixels: Tensor  # (3, S, S) uint8, as the network saw it
    picture: bytes  # for people, PNG
    extent: tuple[int, int]  # of the picture, width and height
    answer: Answer
    truth: str | None = None  # the class of an image of the run's own data, by name
    places: BoundedStore[RowPlace] = field(default_factory=lambda: BoundedStore(_PLACES))
    marks: BoundedStore[RowMark] = field(default_factory=lambda: BoundedStore(_PLACES))
    maps: BoundedStore[Map] = field(default_factory=lambda: BoundedStore(_MAPS))

    def lacking(self, prototypes: Collection[int]) -> list[int]:
        """Those of which the places, or what they are worth, are not known."""
        known = self.places, self.marks
        return [number for number in prototypes if not all(some.find(str(number)) for some in known)]

    def keep(self, row: ExplainedRow) -> None:
        """A finished place."""
        found = RowPlace(as_map(row.input), as_map(row.source), row.source_image)
        self.places.add(found, key=str(row.item.prototype))

    def weightiest(self, label: int, top: int, off: Collection[int] = ()) -> list[EvidenceItem]:
        """The first prototypes that speak for a class, those that are switched off left out."""
        silent = set(off)
        return [item for item in self.answer.evidence(label, off) if item.prototype not in silent][:top]

    def sheet(
        self, label: int, rows: Sequence[tuple[EvidenceItem, RowPlace]], off: Collection[int] = ()
    ) -> bytes:
        """The explanation of a class by these prototypes and their places as one picture, PNG."""
        score = float(self.answer.logits(off)[label])
        classes, shares = self.answer.model.classes, self.answer.probabilities(off)
        likely = [
            (classes[index], float(shares[index])) for index in shares.argsort(descending=True)[:_LIKELY]
        ]
        drawn = explanation_sheet(
            self.pixels,
            title=self.name or "image",
            probabilities=likely,
            explained=classes[label],
            rows=[self._drawn(item, place) for item, place in rows],
            rest=score - sum(item.contribution for item, _ in rows),
            logit=score,
        )
        return encoded(drawn)

    def _drawn(self, item: EvidenceItem, place: RowPlace) -> ExplanationRow:
        mark = self.marks.find(str(item.prototype))
        return ExplanationRow(
            boxed_place(overlay(self.pixels, place.image.heatmap.float()), item.place),
            boxed_place(overlay(place.source_image, place.source.heatmap.float()), item.source_place),
            item.class_name,
            item.prototype,
            item.similarity,
            item.weight,
            item.contribution,
            item.part,
            item.place is not None,
            item.ahead,
            "" if mark is None else mark.said,
            "" if mark is None else mark.warning,
        )


def map_key(label: int, method: str, versus: int | None = None) -> str:
    """What a map is kept under."""
    return f"{label}-{method}" if versus is None else f"{label}-{method}-{versus}"


def as_map(explanation: Explanation) -> Map:
    """What is kept of an explanation."""
    raw, heatmap = explanation.raw.detach().cpu().float(), explanation.heatmap.detach().cpu().half()
    return Map(raw, heatmap, explanation.summary())


def png(pixels: Tensor) -> bytes:
    """An image (3, H, W) uint8, encoded anew: nothing of a file that was sent to us is handed on."""
    return encoded(picture(pixels))


def encoded(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format="PNG", compress_level=3)
    return stream.getvalue()


def thumbnail(pixels: Tensor, side: int) -> bytes:
    """The same, no edge longer than `side`."""
    image = picture(pixels)
    image.thumbnail((side, side))
    return encoded(image)


def small_map(raw: Tensor, side: int) -> bytes:
    """A map (S, S) as bytes from 0 to 255 of at most `side` × `side` places, for a preview."""
    shrunk = torch.nn.functional.adaptive_avg_pool2d(raw[None].float(), min(side, raw.shape[-1]))[0]
    low, high = shrunk.min(), shrunk.max()
    scaled = (shrunk - low) / (high - low).clamp_min(1e-12) * 255
    return scaled.round().to(torch.uint8).cpu().numpy().tobytes()
