"""Small networks and data sets that tests share; nothing here needs a download."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from dprotonet.cli.main import main
from dprotonet.compat import import_guarded
from dprotonet.config import Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.data.base import Sample, Splits
from dprotonet.data.birds import Birds, bird_splits
from dprotonet.data.transforms import Augment, Normalise, Views
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Masks, spatial_masks
from dprotonet.encoder.shaping import Shaping
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import LogSimilarity
from dprotonet.network import DProtoNet


class TinyBackbone(nn.Module):
    """A strided convolution with BatchNorm: (B, 3, 32, 32) to (B, 8, 4, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


def shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What `train --show-config` prints."""
    assert main(["train", *words, "--show-config"]) == 0
    return capsys.readouterr().out


def tiny_network(classes: int = 3, per_class: int = 2, seed: int = 0) -> DProtoNet:
    torch.manual_seed(seed)
    regions = Masks(spatial_masks(10, (4, 4), seed=0), dimension=6)
    prototypes = Prototypes(classes, per_class, 6, similarity=LogSimilarity())
    encoder = Encoder(TinyBackbone(), Shaping(8, 6), regions)
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class))


class Remembered:
    """A split drawn once and kept, for tests that go over it many times."""

    def __init__(self, birds: Birds) -> None:
        self.classes, self.labels = birds.classes, birds.labels
        self.fingerprint, self.name = birds.fingerprint, birds.name
        self.samples = [birds[index] for index in range(len(birds))]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]


class DrawnOnce(Birds):
    """The built-in birds, of which a process draws each picture once: a training of tests draws hundreds."""

    drawn: ClassVar[dict[tuple[object, ...], Sample]] = {}

    def render(self, index: int, *, species: int) -> Sample:
        position = self.position(index)
        key = (self.seed, self.split, self.size, position, species)
        if key not in self.drawn:
            self.drawn[key] = super().render(position, species=species)
        kept = self.drawn[key]
        return replace(kept, image=kept.image.clone())  # the reader's own, as ever


def pytest_collection_finish() -> None:
    """What has been imported stays: the collections that each training asks for need not look at it again.

    In a process that has all tests one such took half as long as a tiny training.
    """
    import_guarded("timm")
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def commands_draw_birds_once() -> Iterator[None]:
    """For data sets by name; tests of the drawing make their own `Birds`."""

    def drawn_splits(**settings: Any) -> Splits:
        splits = bird_splits(**settings)
        for part in (splits.train, splits.val, splits.test):
            part.__class__ = DrawnOnce
        return splits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dprotonet.experiment.build.data.bird_splits", drawn_splits)
        yield


@cache
def remembered(split: str, classes: int, per_class: int) -> Remembered:
    return Remembered(Birds(species=classes, per_species=per_class, split=split, seed=0, size=32))


def tiny_views(split: str = "train", classes: int = 3, per_class: int = 5, augment: bool = True) -> Views:
    normalise = Normalise((0.5,) * 3, (0.5,) * 3)
    return Views(
        remembered(split, classes, per_class), normalise, augment=Augment() if augment else None, seed=0
    )


@pytest.fixture
def network() -> DProtoNet:
    return tiny_network()


@pytest.fixture
def train_views() -> Views:
    return tiny_views("train")


@pytest.fixture
def val_views() -> Views:
    return tiny_views("val")


def rival_config(name: str, tables: dict[str, dict[str, Any]] | None = None) -> Config:
    """The final config of a network by its word, with some values given."""
    given = tables or {}
    return config_from({**given, "network": {**given.get("network", {}), "network": name}})


def tiny_config(**changes: object) -> Config:
    """A run of seconds: four species at 64 pixels, a ResNet of a few thousand weights, two pushes."""
    training = {
        "epochs": 4,
        "warm_epochs": 1,
        "push_every": 2,
        "last_layer_epochs": 2,
        "batch_size": 8,
        "push_images": 3,
        "augmentations": 2,
        "patience": 5,
        "shaping_start": "random",  # in frozen mode too: what a test is about, not what is best
        "rate_shaping": 3e-3,
        "rate_prototypes": 3e-3,
        **changes,
    }
    return Config(
        DataConfig(species=4, train_per_species=6, val_per_species=3, test_per_species=3, image_size=64),
        NetworkConfig(backbone="timm:test_resnet:none", dimension=16, masks=12, prototypes_per_class=2),
        TrainingConfig(**training),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in frozen mode with the packaged backbone; tests must not change it."""
    folder = tmp_path_factory.mktemp("session")
    config = tiny_config(mode="frozen")
    packaged = replace(config.network, backbone="timm:tf_efficientnet_lite0:packaged")
    for _ in Trainer(replace(config, network=packaged), folder / "run", cache=folder / "cache").run():
        pass
    return folder / "run"
