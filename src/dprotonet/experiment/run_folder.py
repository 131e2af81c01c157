"""The run folder: everything that training leaves behind, and all that explaining needs.

    config.toml  environment.json  metrics.jsonl  model.safetensors  prototypes.json  prototypes/*.png
    checkpoint/ (for --resume)  tensorboard/ (by option)

Every file is written under a temporary name and renamed. Reading one never runs code.
"""

import json
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import tomli_w
import torch
from PIL import Image

from dprotonet.config import Config, from_tables, read_toml, to_tables
from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.network import DProtoNet
from dprotonet.training.checkpoint import load_weights, save_tensors, write_text
from dprotonet.training.push import Projection

FORMAT = 1


@dataclass(frozen=True)
class PrototypeRecord:
    """Where a prototype came from. Its views are variants 0 … views-1 of the source, augmented by `seed`."""

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

    def create(self, *, overwrite: bool) -> None:
        """Make the folder; an occupied one is an error unless it may be overwritten."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--out {self.path} is a file; name a folder")
        occupied = self.path.is_dir() and any(self.path.iterdir())
        if occupied and not overwrite:
            raise UserError(
                f"--out {self.path} is not empty; "
                "add --resume to go on, --overwrite to start anew, or name another"
            )
        if occupied and not (self.path / "config.toml").is_file():
            raise UserError(
                f"--out {self.path} is not a run folder and will not be overwritten; name another"
            )
        if occupied:
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True, exist_ok=True)

    def write_config(self, config: Config) -> None:
        write_text(self.path / "config.toml", tomli_w.dumps(to_tables(config)))

    def read_config(self) -> Config:
        if not self.path.is_dir():
            raise UserError(
                f"{self.path} does not exist or is not a folder; give the --out folder of `dprotonet train`"
            )
        if not (self.path / "config.toml").is_file():
            raise UserError(f"{self.path} has no config.toml, so it is not a run folder; train one first")
        return from_tables(Config, read_toml(self.path / "config.toml"), where="")

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
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics_size(self) -> int:
        return self.metrics.stat().st_size if self.metrics.exists() else 0

    def cut_metrics(self, size: int) -> None:
        """Forget what was logged after a checkpoint, so that a resumed run logs nothing twice."""
        if self.metrics.exists():
            with self.metrics.open("r+b") as file:
                file.truncate(size)

    def read_metrics(self) -> list[dict[str, Any]]:
        lines = self.metrics.read_text(encoding="utf-8").splitlines() if self.metrics.exists() else []
        return [json.loads(line) for line in lines if line.strip()]

    # ── model ──

    def write_model(
        self, network: DProtoNet, records: Sequence[PrototypeRecord], classes: Sequence[str]
    ) -> None:
        """Weights first, the list of prototypes last: a folder with prototypes.json is complete."""
        save_tensors(self.path / "model.safetensors", network.state_dict(), {"format": "pt"})
        content = {
            "format": FORMAT,
            "classes": list(classes),
            "prototypes": [asdict(item) for item in records],
        }
        write_text(self.path / "prototypes.json", json.dumps(content, indent=1, ensure_ascii=False))

    def write_sources(self, train: ImageData, records: Sequence[PrototypeRecord]) -> None:
        """The source images as the network saw them, each once."""
        folder = self.path / "prototypes"
        folder.mkdir(exist_ok=True)
        for name, index in {item.image: item.index for item in records if item.image}.items():
            pixels = train[index].image.permute(1, 2, 0).numpy()
            temporary = (self.path / name).with_suffix(".tmp")
            Image.fromarray(pixels).save(temporary, format="PNG")
            temporary.replace(self.path / name)
        wanted = {item.image for item in records}
        for old in folder.glob("*.png"):
            if f"prototypes/{old.name}" not in wanted:
                old.unlink()

    def read_prototypes(self) -> tuple[list[str], list[PrototypeRecord]]:
        path = self.path / "prototypes.json"
        if not path.is_file():
            raise UserError(
                f"{path} is missing; training has not reached its first push, go on with --resume"
            )
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            records = [PrototypeRecord(**item) for item in content["prototypes"]]
            classes = [str(name) for name in content["classes"]]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is damaged or of another version ({error}); copy the run again"
            ) from None
        if not classes or not records:
            raise UserError(f"{path} names no class or no prototype; copy the run again")
        return classes, records

    def load_weights(self, network: DProtoNet) -> None:
        load_weights(network, self.path / "model.safetensors")


def prototype_records(
    network: DProtoNet, projection: Projection, train: ImageData, *, seed: int
) -> list[PrototypeRecord]:
    """Provenance of every prototype, with names instead of numbers."""
    owner = network.prototype_class.tolist()
    rows = zip(
        projection.index.tolist(),
        projection.region.tolist(),
        projection.distances.tolist(),
        projection.collapsed.tolist(),
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
        )
        for number, (index, region, distance, collapsed) in enumerate(rows)
    ]
