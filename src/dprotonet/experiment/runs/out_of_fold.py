"""Answers to training images of networks that have not seen them: what probabilities are calibrated on.

The training images are cut into k parts. For each part a network is trained on the others exactly as the run
was, and the run's own validation images choose which of its rounds is kept: the part itself chooses nothing.
What belongs together (one patient, equal bytes) is in one part. No run folder is written.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from dprotonet.data.base import ImageData, Splits
from dprotonet.data.folds import parts_of
from dprotonet.data.subset import Subset
from dprotonet.experiment.build.training import build_accelerator, build_stages
from dprotonet.experiment.runs.network_start import start_network
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.training.evaluation import Predictions, evaluate
from dprotonet.training.events import Event, RoundDone


class PartStep(NamedTuple):
    """What the network that leaves out this part (from 1) is doing."""

    part: int
    event: Preparing | Event


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
