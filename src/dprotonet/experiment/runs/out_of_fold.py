"""Answers to training images of networks that have not seen them: what probabilities are calibrated on.

The training images are cut into k parts. For each part a network is trained on the others exactly as the run
was, and the run's own validation images choose which of its rounds is kept: the part itself chooses nothing.
What belongs together (one patient, equal bytes) is in one part. No run folder is written.
"""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from dprotonet.data.base import ImageData, Splits
from dprotonet.data.folds import parts_of
from dprotonet.data.subset import Subset
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import has_several_labels
from dprotonet.experiment.build.training import build_accelerator, build_stages
from dprotonet.experiment.runs.calibration import (
    VALIDATION,
    Calibration,
    calibration_of,
    stored_digest,
)
from dprotonet.experiment.runs.network_start import start_network
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.launch import is_main
from dprotonet.progress import Progress
from dprotonet.training.evaluation import Predictions, evaluate
from dprotonet.training.events import EpochDone, Event, RoundDone

CalibrationImages = Literal["auto", "folds", "validation"]
FOLDS = 5
FEW = 200  # validation images, below which no answer could be stated with more than 99.5 %


class PartStep(NamedTuple):
    """What the network that leaves out this part (from 1) is doing."""

    part: int
    event: Preparing | Event


def trained_and_calibrated(
    trainer: Trainer, images: CalibrationImages = "auto"
) -> Generator[Preparing | Event, None, None]:
    """Train, which calibrates on the validation images; then on folds if asked for, or if `auto` says so.

    What is there stays until the better one is done. A finished run that is resumed is not calibrated twice.
    """
    several = has_several_labels(trainer.config.data.data)
    if several and images == "folds":
        raise UserError("--calibration folds is for one class per image; leave it out for several labels")
    yield from trainer.run()
    if several:
        return
    if images == "validation" or _on_folds(trainer.out):
        return
    folds = FOLDS if images == "folds" else None
    found = yield from fold_calibration(trainer.out, cache=trainer.cache, folds=folds)
    if found is not None and is_main():
        found.write(trainer.out)


def _on_folds(run: Path) -> bool:
    """Whether the calibration of these weights is there, from folds."""
    known = Calibration.read(run)
    return known is not None and known.source != VALIDATION and known.weights == stored_digest(run)


def fold_calibration(
    run: Path, *, cache: Path, folds: int | None = None, on_scan: Progress | None = None
) -> Generator[Preparing, None, Calibration | None]:
    """The calibration of a finished run from out-of-fold answers; its folder is not written to.

    `folds` None decides by itself: FOLDS where folds are cheap and validation images few, else nothing.
    """
    trainer = Trainer(RunFolder(run).read_config(), run, cache=cache, on_scan=on_scan)
    splits = trainer.splits(trainer.config.data, on_scan)
    count = (FOLDS if _wanted(trainer, splits) else 0) if folds is None else folds
    if folds is None and not count:
        return None
    check_folds(splits.train, count)
    work = OutOfFold(trainer, count).run(splits)
    answers = yield from _counted(work, trainer.config.training.epochs * count)
    source = f"training images, by {count} networks that had not seen them"
    return calibration_of(answers.logits, answers.labels, stored_digest(run), source=source)


def _wanted(trainer: Trainer, splits: Splits) -> bool:
    """Not in a fold of a cross-validation."""
    alone = not trainer.config.data.fold
    enough = min(Counter(splits.train.labels).values()) >= 2 * FOLDS
    return trainer.config.training.mode == "frozen" and len(splits.val) < FEW and enough and alone


def check_folds(train: ImageData, folds: int) -> None:
    """An error where a network of a fold would have to learn a class from too little."""
    if folds < 2:
        raise UserError(f"--folds {folds}: at least two are needed, or 0 for the validation images")
    rarest = min(Counter(train.labels).values())
    if rarest < 2 * folds:
        raise UserError(
            f"--folds {folds} takes {2 * folds} training images of each class, and one class has {rarest}; "
            "--folds 0 calibrates on the validation images"
        )


def _counted(
    work: Generator["PartStep", None, Predictions], total: int
) -> Generator[Preparing, None, Predictions]:
    """Epochs of all networks as one bar."""
    done = 0
    while True:
        try:
            step = next(work)
        except StopIteration as stop:
            found: Predictions = stop.value
            return found
        if isinstance(step.event, EpochDone) and step.event.phase != "last":
            done += 1
            yield Preparing("calibrating", done, max(done, total))


@dataclass(frozen=True)
class OutOfFold:
    """`trainer` says how a run is trained; `folds` in how many parts its training images are cut."""

    trainer: Trainer
    folds: int

    def run(self, splits: Splits) -> Generator[PartStep, None, Predictions]:
        """Logits of all training images of `splits`, in their order, by networks that have not seen them."""
        seed = self.trainer.config.data.data_seed
        number = torch.tensor(parts_of(splits.train, folds=self.folds, seed=seed))
        logits = torch.empty(len(splits.train), len(splits.train.classes))
        for part in range(self.folds):
            own, others = (number == part).nonzero().flatten(), (number != part).nonzero().flatten()
            learned = replace(splits, train=Subset(splits.train, others.tolist()))
            left_out = Subset(splits.train, own.tolist())
            training = kept_answers(self.trainer, learned, left_out)
            try:
                while True:
                    yield PartStep(part + 1, next(training))
            except StopIteration as done:
                logits[own] = done.value.logits
        return Predictions(logits, torch.tensor(splits.train.labels))


def kept_answers(
    trainer: Trainer, splits: Splits, asked: ImageData
) -> Generator[Preparing | Event, None, Predictions]:
    """Train on `splits` and answer the images `asked` by the model that a run would keep."""
    network = trainer.new_network(splits)
    accelerator = build_accelerator(trainer.config.training)
    engine = yield from trainer.engine(network, splits, accelerator)
    start_network(engine.network, engine.train_views, trainer.config.training, accelerator.device)
    views = yield from trainer.judged(network, asked, accelerator)
    found = None
    for event in engine.run(build_stages(trainer.config)):
        yield event
        if isinstance(event, RoundDone) and event.kept:
            found = evaluate(engine.network, views, accelerator=accelerator)
    assert found is not None, "training ends with a round"
    return found
