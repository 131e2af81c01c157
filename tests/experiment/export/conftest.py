"""Runs that were never trained, with all that a run folder has: exporting does not care what was learned."""

import contextlib
import io
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import tiny_config
from tests.experiment.test_rivals import tiny_rival

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config
from dprotonet.data.birds import Birds
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.runs.run_folder import PrototypeRecord

SIZE = 64
# Two of the four prototypes of a class share a part.
PARTS = {"regions": "parts", "parts": 3, "similarity": "cosine", "prototypes_per_class": 4}


def config_of(kind: str) -> Config:
    plain = tiny_config()
    small = {
        "spatial": plain,
        "uniform": replace(plain, network=replace(plain.network, mask_style="uniform")),
        "levels": replace(plain, network=replace(plain.network, levels=2, regions="points")),
        "grey": replace(plain, network=replace(plain.network, channels=1)),
        "parts": replace(plain, network=replace(plain.network, **PARTS)),
    }
    config = small[kind] if kind in small else tiny_rival(kind)
    return replace(config, data=replace(config.data, image_size=SIZE))


@cache
def untrained(kind: str) -> dp.Model:
    """A model of random weights, whose prototypes lie among its features."""
    torch.manual_seed(0)
    config, birds = config_of(kind), Birds(species=4, per_species=3, split="val", size=SIZE)
    network = build_network(config.network, classes=4, image_size=SIZE, pretrained=False)
    records: list[PrototypeRecord] = []
    if isinstance(network, dp.DProtoNet):
        torch.nn.init.normal_(network.prototypes.vectors, std=0.1)
        records = [
            PrototypeRecord(
                number, birds.classes[owner], f"{number}.png", 0, "prototypes/000000.png", 0, 0.0, 1, 0, False
            )
            for number, owner in enumerate(network.prototype_class.tolist())
        ]
    model = dp.Model(network, config=config, classes=birds.classes, prototypes=records)
    train = Birds(species=4, per_species=5, split="train", size=SIZE)
    model.familiarity = model.measured_familiarity(birds, train=train)
    return model


@dataclass(frozen=True)
class Exported:
    """A run, the files made of it by the command, and what the command printed."""

    run: Path
    onnx: Path
    torch: Path
    told: dict[str, Any]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The spatial model as both kinds of file. Exporting takes seconds, so it is done once."""
    folder = tmp_path_factory.mktemp("exported")
    untrained("spatial").save_pretrained(folder / "run")
    files = folder / "model.onnx", folder / "model.pt2"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        words = [str(folder / "run"), "--onnx", str(files[0]), "--torch", str(files[1]), "--json"]
        assert main(["export", *words]) == 0
    return Exported(folder / "run", *files, json.loads(printed.getvalue()))


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(
        0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
