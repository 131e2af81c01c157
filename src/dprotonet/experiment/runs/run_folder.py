"""The run folder: everything that training leaves behind, and all that explaining needs.

    config.toml  origins.json  environment.json  metrics.jsonl  model.safetensors  prototypes.json
    prototypes/*.png  familiarity.json  validation.json  checkpoint/ (for --resume)
    tensorboard/ (by option)  mode.json (by --mode auto)
    explanations/, prototype_facts.json, part_names.json (once asked for)
    cleaned.json (where prototypes were dropped)

Every file is written under a temporary name and renamed. Reading one never runs code.
"""

import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import tomli_w
import torch
from PIL import Image
from torch import Tensor

from dprotonet.config import Config, by_name, read_toml, to_tables
from dprotonet.data.base import ImageData, image_of
from dprotonet.data.transforms import Normalise
from dprotonet.errors import UserError
from dprotonet.experiment.runs.metrics_file import read_records
from dprotonet.experiment.runs.place import Place, place_of, places_of, region_places
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.files import is_unfinished, naming, put_aside, read_json, remove_unfinished, whole, write_text
from dprotonet.inference.projection import NOTHING
from dprotonet.network import DProtoNet, Network
from dprotonet.training.checkpoint import load_tensors, read_metadata, save_tensors, tidy_checkpoint
from dprotonet.training.events import RoundDone
from dprotonet.training.push import Projection

FORMAT = 1

_LATER = ("place", "sources")  # fields that files of earlier versions lack
_SOURCE = re.compile(r"prototypes/\d{6,}\.png")


@dataclass(frozen=True)
class PrototypeRecord:
    """Where a prototype came from. Its views are variants 0 … views-1 of the source, augmented by `seed`.

    Without an `image` the source is unknown (`unknown_source`). Files of earlier versions have neither
    `place` nor `sources`; `Model.load` fills them in.
    """

    prototype: int
    class_name: str
    source: str  # name of the training image
    index: int  # its number in the training split
    image: str  # file in the run folder
    region: int
    distance: float
    views: int
    seed: int
    collapsed: bool  # lies on an earlier prototype of its class
    place: Place | None = None  # of its region on the source; None where regions are no places
    sources: tuple[str, ...] = ()  # names of all images it was mixed from, the source first


@dataclass(frozen=True)
class RunFolder:
    """Names and formats of the files of one run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def check_free(self, *, overwrite: bool) -> bool:
        """Whether an earlier run is in the way; an error unless that may be overwritten.

        What a kill left of files that were never whole is nobody's run.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--out {self.path} is a file; name a folder")
        occupied = self.path.is_dir() and not all(map(is_unfinished, self.path.iterdir()))
        if occupied and not overwrite:
            raise UserError(
                f"--out {self.path} is not empty; "
                "add --resume to go on, --overwrite to start anew, or name another"
            )
        if occupied and not (self.path / "config.toml").is_file():
            raise UserError(
                f"--out {self.path} is not a run folder and will not be overwritten; name another"
            )
        return occupied

    def create(self, *, overwrite: bool) -> None:
        """Make the folder, in place of an earlier run if that may be overwritten."""
        real = self.path.expanduser().resolve()  # of a link the folder that it leads to
        if self.check_free(overwrite=overwrite):
            put_aside(real, last="config.toml")
        real.mkdir(parents=True, exist_ok=True)
        self.tidy()

    def tidy(self) -> None:
        """Remove what killed processes left: files that were not whole, and this folder put aside."""
        real = self.path.resolve()
        remove_unfinished(real)
        remove_unfinished(real / "prototypes")
        tidy_checkpoint(real / self.checkpoint.name)
        remove_unfinished(real.parent, of=real.name)

    def write_config(self, config: Config, origins: Mapping[str, str] | None = None) -> None:
        """The final values, and beside them where each came from; an unchanged value keeps its origin."""
        known = self.read_origins()
        if known:
            before = by_name(self.read_config())
            same = {name for name, value in by_name(config).items() if before.get(name) == value}
            origins = {**(origins or {}), **{name: known[name] for name in same if name in known}}
        write_text(self.path / "config.toml", tomli_w.dumps(to_tables(config)))
        if origins is not None:
            write_text(self.path / "origins.json", json.dumps(origins, indent=1, ensure_ascii=False))

    def read_origins(self) -> dict[str, str]:
        """Where each setting came from, by `section.key`; nothing for runs of earlier versions."""
        try:
            content = read_json(self.path / "origins.json")
        except (FileNotFoundError, ValueError):
            return {}
        return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else {}

    def read_config(self) -> Config:
        if not self.path.is_dir():
            raise UserError(
                f"{self.path} does not exist or is not a folder; give the --out folder of `dprotonet train`"
            )
        if not (self.path / "config.toml").is_file():
            raise UserError(f"{self.path} has no config.toml, so it is not a run folder; train one first")
        try:
            return config_from(read_toml(self.path / "config.toml"))
        except UserError as error:
            named = str(self.path) in f"{error}"
            raise error if named else UserError(f"{self.path / 'config.toml'}: {error}") from None

    def write_environment(self) -> None:
        packages = (
            "dprotonet",
            "torch",
            "torchvision",
            "timm",
            "accelerate",
            "safetensors",
            "numpy",
            "pillow",
        )
        facts = {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": {name: metadata.version(name) for name in packages},
            "cuda": torch.version.cuda,
            "threads": torch.get_num_threads(),
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        }
        write_text(self.path / "environment.json", json.dumps(facts, indent=1))

    # ── metrics ──

    def append_metrics(self, record: dict[str, Any]) -> None:
        with naming(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics_size(self) -> int:
        return self.metrics.stat().st_size if self.metrics.exists() else 0

    def cut_metrics(self, size: int) -> None:
        """Forget what was logged after a checkpoint, so that a resumed run logs nothing twice."""
        if self.metrics.exists():
            with self.metrics.open("r+b") as file:
                file.truncate(size)

    def read_metrics(self) -> list[dict[str, Any]]:
        return read_records(self.metrics)

    # ── validation ──

    def write_validation(self, done: RoundDone) -> None:
        """Labels and predictions of the validation images at the last round, kept or not."""
        found = done.predictions
        predicted = (found.logits > 0).int() if found.several else found.logits.argmax(1)
        answers = {"labels": found.labels.tolist(), "predicted": predicted.tolist()}
        write_text(self.path / "validation.json", json.dumps({"epoch": done.epoch, **answers}))

    def read_validation(self) -> tuple[Tensor, Tensor]:
        """Labels and predictions (N,)."""
        path = self.path / "validation.json"
        try:
            content = read_json(path)
            labels, predicted = (torch.tensor(content[key]) for key in ("labels", "predicted"))
        except FileNotFoundError:
            raise UserError(f"{path} is missing; the run has not come to its first round") from None
        except (ValueError, KeyError, TypeError, RuntimeError):  # the last is torch's
            raise UserError(f"{path} is damaged; remove the run and train it again") from None
        return labels, predicted

    # ── model ──

    def keep(self, network: Network, records: Sequence[PrototypeRecord], *, train: ImageData) -> None:
        """A better model in place of the old: new pictures, weights, the list of prototypes; then tidy up."""
        self._write_sources(train, records)
        self.write_model(network, records, train.classes)
        wanted = {item.image for item in records}
        for old in (self.path / "prototypes").glob("*.png"):
            if f"prototypes/{old.name}" not in wanted:
                old.unlink()

    def write_model(
        self, network: Network, records: Sequence[PrototypeRecord], classes: Sequence[str]
    ) -> None:
        """Weights and the list of prototypes, each with the digest by which they know one another."""
        digest = _digest(records)
        metadata = {"format": "pt", "prototypes": digest}
        save_tensors(self.path / "model.safetensors", network.state_dict(), metadata)
        content = {
            "format": FORMAT,
            "digest": digest,
            "classes": list(classes),
            "prototypes": [asdict(item) for item in records],
        }
        write_text(self.path / "prototypes.json", json.dumps(content, indent=1, ensure_ascii=False))

    def _write_sources(self, train: ImageData, records: Sequence[PrototypeRecord]) -> None:
        """The source images as the network saw them, each once; those that an earlier push wrote stay."""
        (self.path / "prototypes").mkdir(exist_ok=True)
        wanted = {item.image: item.index for item in records}
        for name, index in wanted.items():
            if (self.path / name).exists():  # named after its index, in a folder of one data set
                continue
            pixels = image_of(train, index).permute(1, 2, 0).numpy()
            with whole(self.path / name) as temporary:
                Image.fromarray(pixels).save(temporary, format="PNG", compress_level=1)

    def read_prototypes(self) -> tuple[list[str], list[PrototypeRecord]]:
        """Class names and provenance (none for a black box); nothing in the file is trusted."""
        path = self.path / "prototypes.json"
        if not path.is_file():
            raise UserError(
                f"{path} is missing; training has not reached its first push, go on with --resume"
            )
        try:
            content = read_json(path)
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}, this version reads {FORMAT}")
            classes = _checked_classes(content["classes"])
            records = [_checked_record(*pair, classes) for pair in enumerate(content["prototypes"])]
            if content["digest"] != _digest(records):
                raise ValueError("the prototypes do not match their digest")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is damaged or of another version ({error}); copy the run again"
            ) from None
        return classes, records

    def read_weights(self, records: Sequence[PrototypeRecord]) -> dict[str, Tensor]:
        """The tensors of the network that `records` belong to."""
        path = self.path / "model.safetensors"
        tensors = load_tensors(path)
        if read_metadata(path).get("prototypes") != _digest(records):
            raise UserError(
                f"{path} and prototypes.json are of different models; copy the run again, or --resume it"
            )
        return tensors


def _digest(records: Sequence[PrototypeRecord]) -> str:
    """Of all fields but empty ones that earlier versions did not have: their files keep their digests."""
    known = [
        {key: value for key, value in asdict(item).items() if value or key not in _LATER} for item in records
    ]
    text = json.dumps(known)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _checked_classes(classes: object) -> list[str]:
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise TypeError("classes must be a list of names")
    if len(classes) < 2 or len(set(classes)) != len(classes):
        raise ValueError("classes must be two or more different names")
    return classes


def _checked_record(number: int, item: dict[str, Any], classes: Sequence[str]) -> PrototypeRecord:
    """A record whose picture lies where we put pictures: never a path that leads out of the folder."""
    place = item.get("place")
    record = PrototypeRecord(
        **{
            **item,
            "place": None if place is None else Place.from_json(place),
            "sources": tuple(item.get("sources", ())),
        }
    )
    if not isinstance(record.image, str) or (record.image and not _SOURCE.fullmatch(record.image)):
        raise ValueError(f"prototype {number} names the picture {record.image!r}")
    if record.prototype != number or record.class_name not in classes or not isinstance(record.source, str):
        raise ValueError(f"prototype {number} is not in order")
    if not all(isinstance(name, str) for name in record.sources):
        raise ValueError(f"prototype {number} has sources without a name")
    return record


def unknown_source(prototype: int, class_name: str) -> PrototypeRecord:
    """The record of a prototype whose training image nobody kept."""
    return PrototypeRecord(
        prototype=prototype,
        class_name=class_name,
        source="unknown",
        index=-1,
        image="",
        region=-1,
        distance=-1.0,
        views=0,
        seed=0,
        collapsed=False,
    )


def completed(records: Sequence[PrototypeRecord], places: Sequence[Place] | None) -> list[PrototypeRecord]:
    """Records of an earlier version with the place of their region and their source as the only one."""
    return [
        replace(
            item,
            place=item.place or place_of(item.region, places),
            sources=item.sources or ((item.source,) if item.image else ()),
        )
        for item in records
    ]


def prototype_records(
    network: DProtoNet, projection: Projection, train: ImageData, *, seed: int, normalise: Normalise
) -> list[PrototypeRecord]:
    """Provenance of every prototype, with names and places instead of numbers.

    `normalise` makes images what the network takes: where parts follow the content they are looked for.
    """
    owner, places = network.prototype_class.tolist(), region_places(network.encoder)
    found = _places_in_sources(network, projection, train, normalise)
    rows = zip(
        projection.index.tolist(),
        projection.region.tolist(),
        projection.distances.tolist(),
        projection.collapsed.tolist(),
        projection.sources.tolist(),
        strict=True,
    )
    return [
        PrototypeRecord(
            prototype=number,
            class_name=train.classes[owner[number]],
            source=train.name(index),
            index=index,
            image=f"prototypes/{index:06d}.png",
            region=region,
            distance=distance,
            views=projection.views,
            seed=seed,
            collapsed=collapsed,
            place=place_of(region, found.get(index, places)),
            sources=tuple(train.name(source) for source in sources if source != NOTHING),
        )
        for number, (index, region, distance, collapsed, sources) in enumerate(rows)
    ]


@torch.no_grad()
def _places_in_sources(
    network: DProtoNet, projection: Projection, train: ImageData, normalise: Normalise
) -> dict[int, tuple[Place, ...]]:
    """By source image the places of all regions where these follow the content; nothing where they do not."""
    if not hasattr(network.encoder.regions, "boxes"):
        return {}
    was_training, device = network.training, network.head.weight.device
    network.eval()
    indices = projection.index.unique().tolist()
    found: dict[int, tuple[Place, ...]] = {}
    for start in range(0, len(indices), 32):
        block = indices[start : start + 32]
        images = normalise(torch.stack([image_of(train, index) for index in block])).to(device)
        boxes = network.encoder.boxes_in(network.encoder.feature_map(images))
        assert boxes is not None
        found |= {index: places_of(rows) for index, rows in zip(block, boxes, strict=True)}
    network.train(was_training)
    return found
