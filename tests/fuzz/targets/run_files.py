"""Every file of a run folder, one damaged at a time, read by the reader that it belongs to."""

import json
import random
import shutil
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from tests.fuzz.mutation import mutated, odd_json, odd_tree
from tests.fuzz.target import Case
from tests.fuzz.targets.material import tiny_run

from dprotonet.experiment.benchmark import files, run
from dprotonet.experiment.evaluation.calibration import measured_sets
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.facts import kept_facts
from dprotonet.experiment.runs import cross_validation
from dprotonet.experiment.runs.calibration import stored_calibration
from dprotonet.experiment.runs.familiarity import Familiarity, stored_familiarity
from dprotonet.experiment.runs.row_places import PlaceLimit
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.trained.part_names import read_part_names
from dprotonet.report.about import about
from dprotonet.report.history import history
from dprotonet.report.performance import stored, stored_positive

_COPIED = (
    "config.toml",
    "origins.json",
    "environment.json",
    "metrics.jsonl",
    "prototypes.json",
    "model.safetensors",
    "calibration.json",
    "familiarity.json",
    "familiarity.safetensors",
    "row_places.json",
    "part_names.json",
    "validation.json",
    "prototype_facts.json",
    "evaluation/test.json",
)


class RunFiles:
    """One file is another than it was; all others are as they were."""

    def __init__(self, place: Path) -> None:
        run = tiny_run(place)
        self.model, self.run = Model.load(run), place / "run"
        self.good = {name: (run / name).read_bytes() for name in _COPIED if (run / name).is_file()}
        shutil.rmtree(self.run, ignore_errors=True)
        for name, content in self.good.items():
            (self.run / name).parent.mkdir(parents=True, exist_ok=True)
            (self.run / name).write_bytes(content)
        self.readers: Mapping[str, Callable[[], object]] = self._readers()
        self.kinds = [name for name in self.readers if name in self.good]

    def draw(self, generator: random.Random) -> Case:
        name = generator.choice(self.kinds)
        return Case(name, damaged(generator, name, self.good[name]))

    def feed(self, case: Case) -> None:
        try:
            (self.run / case.kind).write_bytes(case.content)
            self.readers[case.kind]()
        finally:
            (self.run / case.kind).write_bytes(self.good[case.kind])

    def left(self) -> Iterable[str]:
        there = {path.relative_to(self.run).as_posix() for path in self.run.rglob("*") if path.is_file()}
        return there - self.good.keys()

    def _readers(self) -> dict[str, Callable[[], object]]:
        """By file, all that reads it."""
        folder, model = RunFolder(self.run), self.model
        own, network = model.prototypes, model.network
        model.folder = self.run
        return {
            "config.toml": lambda: folder.read_config(),
            "origins.json": lambda: folder.read_origins(),
            "environment.json": lambda: about(model, folder=self.run),
            "metrics.jsonl": lambda: [read(folder) for read in _OF_METRICS],
            "prototypes.json": lambda: folder.read_prototypes(),
            "model.safetensors": lambda: folder.read_weights(own),
            "calibration.json": lambda: stored_calibration(self.run, network),
            "familiarity.json": lambda: _asked(stored_familiarity(self.run, network), len(own)),
            "familiarity.safetensors": lambda: stored_familiarity(self.run, network),
            "row_places.json": lambda: PlaceLimit.read(self.run, network),
            "part_names.json": lambda: read_part_names(self.run, own),
            "validation.json": lambda: folder.read_validation(),
            "prototype_facts.json": lambda: kept_facts(model),
            "evaluation/test.json": lambda: (
                stored(self.run, network, model.classes),
                stored_positive(self.run, model.classes),
                measured_sets(self.run, network),
            ),
        }


_OF_METRICS = (
    history,
    files._curve,
    lambda folder: run._length(folder, 4),
    run._push_changes,
    run._last_accuracy,
    cross_validation._outcome,
)


def _asked(known: Familiarity | None, prototypes: int) -> object:
    """What was read must answer, too."""
    if known is None:
        return None
    levels = None if known.features is None else torch.rand(2, len(known.features.spread.levels))
    return known.words, known.distance(torch.rand(2, prototypes), levels)


def damaged(generator: random.Random, name: str, content: bytes) -> bytes:
    """As its kind of file can be damaged."""
    if name.endswith(".json"):
        return odd_json(generator, content.decode())
    if name.endswith(".jsonl"):
        lines = content.decode().splitlines()
        at = generator.randrange(len(lines))
        lines[at] = odd_json(generator, lines[at]).decode(errors="surrogateescape")
        return "\n".join(lines).encode(errors="surrogateescape")
    if name.endswith(".safetensors") and generator.random() < 0.7:
        return odd_safetensors(generator, content)
    return mutated(generator, content)


_ODD = (float("nan"), float("inf"), 1e38, 0.0, -1.0)


def odd_safetensors(generator: random.Random, content: bytes) -> bytes:
    """With another header, whose length is right again; or other numbers, some of them not finite."""
    (length,) = struct.unpack_from("<Q", content)
    header, body = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    if generator.random() < 0.7:
        header = odd_tree(generator, header)
    else:
        for _ in range(generator.choice((1, 4, 50))):
            at = generator.randrange(max(1, len(body) // 4)) * 4
            body[at : at + 4] = struct.pack(
                "<f", generator.choice((float("nan"), float("inf"), 1e38, 0.0, -1.0))
            )
    text = json.dumps(header).encode(errors="surrogatepass")
    return struct.pack("<Q", len(text)) + text + bytes(body)
