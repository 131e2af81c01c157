"""A run folder with a damaged file, loaded and asked for an answer as `predict` does."""

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image
from tests.fuzz.target import Case
from tests.fuzz.targets.material import tiny_run
from tests.fuzz.targets.run_files import damaged

from dprotonet.experiment.model import Model

_NAMES = (
    "config.toml",
    "prototypes.json",
    "model.safetensors",
    "calibration.json",
    "familiarity.json",
    "familiarity.safetensors",
    "row_places.json",
    "part_names.json",
)


class WholeRuns:
    """Slow, since a network is built for every input; digests keep most of them from getting far."""

    def __init__(self, place: Path) -> None:
        material = tiny_run(place)
        self.run = place / "run"
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(material, self.run, ignore=shutil.ignore_patterns("checkpoint"))
        self.good = {name: (self.run / name).read_bytes() for name in _NAMES if (self.run / name).is_file()}
        self.names = {path.name for path in self.run.rglob("*")}
        self.image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))

    def draw(self, generator: random.Random) -> Case:
        name = generator.choice(list(self.good))
        return Case(name, damaged(generator, name, self.good[name]))

    def feed(self, case: Case) -> None:
        try:
            (self.run / case.kind).write_bytes(case.content)
            Model.load(self.run).predict(self.image)
        finally:
            (self.run / case.kind).write_bytes(self.good[case.kind])

    def left(self) -> Iterable[str]:
        return {path.name for path in self.run.rglob("*")} - self.names
