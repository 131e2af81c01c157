"""Training what a plan lacks: finished runs are skipped, stopped ones resumed, failed ones told.

    OUT/runs/ROW--COLUMN--seedN/…            a run folder, with result.json once it is finished

Two processes may share a folder of runs: each run is claimed before it is begun, and what another process is
at is left to it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from dprotonet.experiment.benchmark.plan import Cell, Plan
from dprotonet.experiment.build import RememberedSplits, default_cache
from dprotonet.experiment.claim import claimed
from dprotonet.experiment.evaluation import Evaluation, evaluate_model
from dprotonet.experiment.model import Model
from dprotonet.experiment.result_file import read_result, write_result
from dprotonet.experiment.run_folder import RunFolder
from dprotonet.experiment.trainer import Preparing, Trainer, finished
from dprotonet.training.evaluation import evaluate
from dprotonet.training.events import Event


class Failure(NamedTuple):
    """A run that could not be finished."""

    run: str
    reason: str


class Progress(NamedTuple):
    """Runs that are finished, of all; what the current one is doing."""

    done: int
    total: int
    run: str
    event: Preparing | Event | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Benchmark:
    """A plan, the folder of its runs, and where features are cached."""

    plan: Plan
    folder: Path
    cache: Path = field(default_factory=default_cache)
    splits: RememberedSplits = field(default_factory=RememberedSplits)

    def run(self) -> Iterator[Progress]:
        """Train and evaluate everything that is missing."""
        total = len(self.plan.cells)
        for done, cell in enumerate(self.plan.cells):
            place = self.folder / "runs" / cell.folder
            failure = None
            try:
                with claimed(place):
                    for event in self._finish(cell, place):
                        yield Progress(done, total, cell.folder, event)
            except Exception as error:  # one failed run of many is told, and the others go on
                failure = Failure(cell.folder, " ".join(f"{error}".split()) or type(error).__name__)
            yield Progress(done + 1, total, cell.folder, None, failure)

    def results(self) -> dict[tuple[str, str, int], dict[str, Any]]:
        """What is finished, by row, column and seed."""
        found = {}
        for cell in self.plan.cells:
            result = read_result(self.folder / "runs" / cell.folder, cell.config)
            if result is not None:
                found[cell.row, cell.column, cell.seed] = result
        return found

    def explained(self, cell: Cell) -> Path:
        """The run folder whose network stands for a cell where heatmaps are asked for."""
        return self.folder / "runs" / cell.folder

    def _finish(self, cell: Cell, place: Path) -> Iterator[Preparing | Event]:
        if read_result(place, cell.config) is not None:
            return
        begun = (place / "config.toml").exists()
        trainer = Trainer(cell.config, place, resume=begun, cache=self.cache, splits=self.splits)
        start = time.perf_counter()
        yield from trainer.run_claimed()
        result = {
            "seconds": time.perf_counter() - start,
            "push changes": _push_changes(RunFolder(place)),
            **_evaluated(trainer).summary(),
        }
        write_result(place, cell.config, result)


def _evaluated(trainer: Trainer) -> Evaluation:
    """The kept model on the test split; in frozen mode on cached features, like its training."""
    model = Model.load(trainer.out)
    if trainer.config.training.mode != "frozen":
        return evaluate_model(model, trainer.config.data)
    test = trainer.splits(trainer.config.data, None).test
    accelerator = Accelerator()
    views = trainer.views(model.network, test)
    features = finished(trainer.frozen(views, model.network, accelerator, 0))
    with torch.no_grad():
        predictions = evaluate(model.network.without_backbone(), features, accelerator=accelerator)
    return Evaluation("test", model.classes, predictions)


def _push_changes(run: RunFolder) -> list[float]:
    """How much validation accuracy every push gained or lost."""
    pushes = (item for item in run.read_metrics() if item["event"] == "PushDone")
    return [item["val_after"] - item["val_before"] for item in pushes]
