"""Training what a plan lacks: finished runs are skipped, stopped ones resumed, failed ones told.

    OUT/runs/ROW--COLUMN--seedN/…            a run folder, with result.json once it is finished
    OUT/runs/ROW--COLUMN--seedN/fold-K/…     the same for every fold of a plan with folds

Of a baseline there is result.json alone.

Two processes may share a folder of runs: each run is claimed before it is begun, and what another process is
at is left to it.
"""

import json
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator

from dprotonet.config import Config, by_name
from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.folds import pooled
from dprotonet.experiment.benchmark.plan import AT_THE_END, STOPPED, Cell, Plan, Run
from dprotonet.experiment.benchmark.run_pictures import RunPictures
from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.evaluation.baseline import baseline_data
from dprotonet.experiment.evaluation.evaluation import Evaluation, choose_split, evaluate_model
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.metrics_file import kept_round
from dprotonet.experiment.runs.result_file import read_result, write_result
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.experiment.settings.epochs import Epochs
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.training.evaluation import evaluate
from dprotonet.training.events import Event


class Failure(NamedTuple):
    """A run that could not be finished."""

    run: str
    reason: str


class BenchmarkStep(NamedTuple):
    """Runs that are finished, of all; what the current one is doing."""

    done: int
    total: int
    run: str
    event: Preparing | Event | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Benchmark:
    """A plan, the folder of its runs, and where features are cached.

    Plans that share `runs` train equal configs once, whatever rows and columns they stand for.
    """

    plan: Plan
    folder: Path
    cache: Path = field(default_factory=default_cache)
    splits: RememberedSplits = field(default_factory=RememberedSplits)
    runs: Path | None = None

    def run(self) -> Iterator[BenchmarkStep]:
        """Train and evaluate everything that is missing."""
        runs = [run for cell in self.plan.cells for run in cell.runs]
        for done, run in enumerate(runs):
            failure = None
            try:
                with claimed(self.place(run)):
                    for event in self._finish(run):
                        yield BenchmarkStep(done, len(runs), run.folder, event)
            except Exception as error:  # one failed run of many is told, and the others go on
                failure = Failure(run.folder, " ".join(f"{error}".split()) or type(error).__name__)
            yield BenchmarkStep(done + 1, len(runs), run.folder, None, failure)

    def results(self) -> dict[tuple[str, str, int], dict[str, Any]]:
        """What is finished, by row, column and seed; of folds, all have to be."""
        found = {}
        for cell in self.plan.cells:
            results = [self._result(run) for run in cell.runs]
            known = [result for result in results if result is not None]
            if len(known) == len(results):
                found[cell.row, cell.column, cell.seed] = pooled(known)
        return found

    def check(self) -> None:
        """A UserError where a run is of another plan, or its result cannot be read."""
        for cell in self.plan.cells:
            for run in cell.runs:
                self._read(run)

    def finished(self, run: Run) -> bool:
        return self._result(run) is not None

    def _result(self, run: Run) -> dict[str, Any] | None:
        """None also where it cannot be read: `run` tells of that."""
        try:
            return self._read(run)
        except UserError:
            return None

    def _read(self, run: Run) -> dict[str, Any] | None:
        place = self.place(run)
        result = read_result(place, run.config)
        if result is not None and result.get("baseline") != run.baseline:  # baselines share one config
            raise UserError(f"{place} is of another baseline or network; name another --out, or remove it")
        return result

    def place(self, run: Run) -> Path:
        if self.runs is None:
            return self.folder / "runs" / run.folder
        return self.runs / f"{run.baseline or run.config.network.network}-{config_digest(run.config)}"

    def explained(self, cell: Cell) -> Path:
        """The run that stands for a cell where one network is asked for: the first fold's."""
        return self.place(cell.runs[0])

    def pictures(self) -> list[RunPictures]:
        """What `[figures]` asks for, of the first seed of every column that is finished."""
        plan, finished = self.plan.figures, self.results()
        if plan is None:
            return []
        cells = {cell.column: cell for cell in reversed(self.plan.cells) if cell.row == plan.row}
        return [
            RunPictures(plan, self.explained(cells[column]), self.folder, place, column)
            for place, column in enumerate(self.plan.columns, start=1)
            if column in cells and (plan.row, column, cells[column].seed) in finished
        ]

    def draw(self) -> Iterator[BenchmarkStep]:
        """Make the pictures; one that cannot be made is told, and the others go on."""
        wanted = self.pictures()
        cells = {cell.column: cell for cell in self.plan.cells}
        for done, item in enumerate(wanted):
            failure = None
            try:
                for what in item.make(self.splits(cells[item.column].config.data).test):
                    yield BenchmarkStep(done, len(wanted), what)
            except Exception as error:  # as in `run`
                failure = Failure(
                    f"pictures of {item.column}", " ".join(f"{error}".split()) or type(error).__name__
                )
            yield BenchmarkStep(done + 1, len(wanted), item.column, failure=failure)

    def _finish(self, run: Run) -> Iterator[Preparing | Event]:
        if self._read(run) is not None:
            return
        place = self.place(run)
        begun = (place / "config.toml").exists()
        trainer = Trainer(
            run.config, place, resume=begun, cache=self.cache, splits=self.splits, origins=run.origins
        )
        result = yield from _trained(trainer) if run.baseline is None else _fitted(trainer, run.baseline)
        write_result(place, run.config, result)


def _trained(trainer: Trainer) -> Generator[Preparing | Event, None, dict[str, Any]]:
    """Train a network to its end, and what it came to."""
    yield from trainer.run_claimed()
    folder = RunFolder(trainer.out)
    return {
        **_length(folder, Epochs.of(trainer.config).taken),
        "push changes": _push_changes(folder),
        **_evaluated(trainer).summary(),
        AT_THE_END: _last_accuracy(folder),
    }


def _fitted(trainer: Trainer, baseline: str) -> Generator[Preparing, None, dict[str, Any]]:
    """The same of a baseline, which has neither epochs nor pushes, and no end that was not chosen."""
    if (trainer.out / "config.toml").exists():  # begun when the row was a network
        raise UserError(f"{trainer.out} is of a network; name another --out, or remove it")
    data = yield from baseline_data(trainer)
    start = time.perf_counter()
    found = data.result(baseline)
    nothing: dict[str, Any] = {
        "epochs": None,
        "kept epoch": None,
        "steps": None,
        STOPPED: [],
        "push changes": [],
        AT_THE_END: None,
    }
    return {"baseline": baseline, "seconds": time.perf_counter() - start, **nothing, **found}


def config_digest(config: Config) -> str:
    """Of all that decides what is learned.

    What is at its default is left out, so that a setting of a later version does not give an unfinished run
    another folder. Whether a finished one is still the same, `read_result` tells.
    """
    plain = by_name(Config())
    settings = {
        name: value
        for name, value in by_name(config).items()
        if name != "training.workers" and value != plain[name]
    }
    return blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=6).hexdigest()


def _evaluated(trainer: Trainer) -> Evaluation:
    """The kept model on the test split, or on its fold; in frozen mode on cached features, like its training.

    Test images of a plan with folds are not looked at.
    """
    model, data = TrainedModel.load(trainer.out), trainer.config.data
    split = "val" if data.fold else "test"
    if trainer.config.training.mode != "frozen":
        return evaluate_model(model, data, split=split)
    images = choose_split(trainer.splits(data, None), split)
    accelerator = Accelerator()
    views = trainer.views(model.network, images)
    features = finished(trainer.frozen(views, model.network.encoder.backbone, accelerator, 0))
    with torch.no_grad():
        predictions = evaluate(model.network.without_backbone(), features, accelerator=accelerator)
    return Evaluation(split, model.classes, predictions)


def _length(run: RunFolder, planned: int) -> dict[str, Any]:
    """How long a run took, and why no longer: it came to the last of its `planned` epochs or lost patience.

    Epochs are warm and joint ones, steps of all kinds, which earlier versions did not count. Seconds are of
    epochs and pushes, so that a run that was stopped and resumed has all of them, and features that a run
    found cached are no advantage.
    """
    records = run.read_metrics()
    epochs = [item for item in records if item["event"] == "EpochDone"]
    kept = kept_round(records, run.metrics)
    done = epochs[-1]["epoch"] if epochs else kept["epoch"]
    timed = (item for item in records if item["event"] in ("EpochDone", "PushDone"))
    return {
        "epochs": done,
        "kept epoch": kept["epoch"],
        "steps": epochs[-1].get("steps") if epochs else None,
        "seconds": sum(item.get("seconds", 0.0) for item in timed),
        STOPPED: ["patience" if done < planned else "all epochs done"],
    }


def _push_changes(run: RunFolder) -> list[float]:
    """How much validation accuracy every push gained or lost."""
    pushes = (item for item in run.read_metrics() if item["event"] == "PushDone")
    return [item["val_after"] - item["val_before"] for item in pushes]


def _last_accuracy(run: RunFolder) -> float:
    """On validation images, of the model that training ended with."""
    records = run.read_metrics()
    kept_round(records, run.metrics)  # which says that there are rounds
    return float([item for item in records if item["event"] == "RoundDone"][-1]["val_accuracy"])
