"""What is killed: training in both modes, compare, benchmark, a table of predict, the feature cache.

Each does its work as a user would who repeats the command, and tells what it came to without times.
"""

import json
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tests.conftest import TinyBackbone, remembered, tiny_config, tiny_views

from dprotonet.config import Config
from dprotonet.data.birds import Birds
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.benchmark.run import Benchmark
from dprotonet.experiment.compare.method import method
from dprotonet.experiment.compare.run import Comparison
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.predict_files import TableSettings, predict_files
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.files import is_unfinished
from dprotonet.metrics.faithfulness import RiseProtocol
from dprotonet.metrics.measures import Protocol
from dprotonet.training.checkpoint import load_tensors, tensor_digest
from dprotonet.training.features import FeatureCache

_TIMES = ("seconds",)
_PLAN = """
title = "Tiny"
seeds = [0, 1]
measures = ["accuracy"]
[data]
data = "birds"
species = 2
train_per_species = 4
val_per_species = 2
test_per_species = 2
image_size = 32
[network]
backbone = "timm:test_resnet:none"
dimension = 8
masks = 5
prototypes_per_class = 1
[training]
mode = "frozen"
epochs = 1
warm_epochs = 0
push_every = 1
last_layer_epochs = 1
push_images = 1
augmentations = 1
[[row]]
name = "ours"
[[column]]
name = "birds"
"""


@dataclass(frozen=True)
class Subject:
    """Work below a folder, to be repeated until it is done, and what it came to, by name."""

    name: str
    work: Callable[[Path], None]
    result: Callable[[Path], Mapping[str, Any]]


def subjects(material: Path) -> tuple[Subject, ...]:
    """All of them; what they need beside their own folder is made in `material`."""
    cache = material / "cache"
    run, photos = material / "run", _photos(material / "photos")
    train("frozen", cache)(material)
    return (
        Subject("train frozen", train("frozen", cache), trained),
        Subject("train joint", train("joint", cache), trained),
        Subject("compare", lambda place: _compare(run, place), lambda place: _compared(run, place)),
        Subject("benchmark", lambda place: _benchmark(cache, place), lambda place: _table(cache, place)),
        Subject("predict", lambda place: _predict(run, photos, place), _answers),
        Subject("feature cache", _fill_cache, _features),
    )


def leftovers(place: Path) -> list[str]:
    """Files that are not whole, rows of tables, other checkpoints: nothing of them may stay.

    A lock is one only while a process holds it, so its file does no harm.
    """
    known = (".part", ".new", ".old")
    return [
        str(path.relative_to(place))
        for path in place.rglob("*")
        if is_unfinished(path) or path.suffix in known
    ]


# ── training ──


def _config(mode: str) -> Config:
    """Two pushes, each with a last-layer stage and a judgement: a second or two."""
    config = tiny_config(mode=mode, epochs=2, push_every=1, last_layer_epochs=1, augmentations=1)
    data = replace(config.data, species=2, train_per_species=4, val_per_species=2, image_size=32)
    return replace(config, data=data)


def train(mode: str, cache: Path) -> Callable[[Path], None]:
    """`train`, and `train --resume` where a run was begun."""

    def work(place: Path) -> None:
        out = place / "run"
        begun = (out / "config.toml").is_file()
        for _ in Trainer(_config(mode), out, resume=begun, cache=cache).run():
            pass

    return work


def trained(place: Path) -> dict[str, Any]:
    run = place / "run"
    files = ("prototypes.json", "validation.json", "calibration.json", "familiarity.json", "config.toml")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    pictures = {path.name: path.read_bytes() for path in sorted((run / "prototypes").iterdir())}
    return {
        **{name: (run / name).read_text() for name in files if (run / name).exists()},
        "weights": tensor_digest(dict(sorted(load_tensors(run / "model.safetensors").items()))),
        "metrics": [without_times(line) for line in lines],
        "pictures": pictures,
    }


def without_times(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in _TIMES}


# ── compare ──


def _comparison(run: Path, place: Path) -> Comparison:
    classifier = Classifier.open(run)
    methods = [method(name, classifier) for name in ("gradcam", "centre")]
    birds = Birds(species=2, per_species=2, split="test", seed=0, size=32)
    protocol = Protocol(RiseProtocol(steps=3))
    return Comparison(classifier, birds, methods, place / "compared", protocol=protocol, limit=3)


def _compare(run: Path, place: Path) -> None:
    comparison = _comparison(run, place)
    with claimed(comparison.folder):
        for _ in comparison.run():
            pass


def _compared(run: Path, place: Path) -> dict[str, Any]:
    comparison = _comparison(run, place)
    results = comparison.results()
    maps = {
        f"{name} {index}": (record.heatmap.numpy().tobytes(), dict(record.values), record.passes)
        for name, kept in results.records.items()
        for index, record in kept.items()
    }
    return {"maps": maps, "images": results.samples, "without truth": results.without_truth}


# ── benchmark ──


def _plan(cache: Path, place: Path) -> Benchmark:
    return Benchmark(Plan.of(tomllib.loads(_PLAN), where="plan.toml"), place / "table", cache)


def _benchmark(cache: Path, place: Path) -> None:
    for step in _plan(cache, place).run():
        assert step.failure is None, step.failure


def _table(cache: Path, place: Path) -> dict[str, Any]:
    found = _plan(cache, place).results()
    return {" ".join(map(str, key)): without_times(result) for key, result in found.items()}


# ── predict ──


def _photos(folder: Path) -> Path:
    folder.mkdir()
    birds = remembered("test", 3, 4)
    for number in range(len(birds)):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number:02d}.png")
    (folder / "05b.png").write_bytes(b"broken")
    return folder


def _predict(run: Path, photos: Path, place: Path) -> None:
    """Until the table is there: then there is nothing to go on with."""
    out = place / "answers.csv"
    if out.exists() and not leftovers(place):
        return
    paths = sorted(photos.iterdir())
    predict_files(TrainedModel.load(run), paths, out, settings=TableSettings(batch_size=2))


def _answers(place: Path) -> dict[str, Any]:
    return {"table": (place / "answers.csv").read_text(encoding="utf-8")}


# ── the feature cache ──


def _cache(place: Path) -> FeatureCache:
    torch.manual_seed(0)
    return FeatureCache(place / "cache", TinyBackbone().eval(), tiny_views(), 2, torch.device("cpu"), batch=8)


def _fill_cache(place: Path) -> None:
    for _ in _cache(place).build():
        pass


def _features(place: Path) -> dict[str, Any]:
    features = _cache(place)
    return {"features": np.array(features.open().features).tobytes(), "name": features.path.name}


def cleared(place: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place
