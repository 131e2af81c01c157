"""`--mode auto`: whether the backbone should learn, decided by cross-validation inside the training images.

    OUT.trials/frozen/fold-1 …    OUT.trials/joint/fold-1 …    while they run; resumed if stopped
    OUT/mode.json                 what was decided, and by which numbers

With few images a backbone that learns forgets more than it finds; with many it wins (docs/training.md). Where
one turns into the other depends on the data, so both are tried on the same folds. Test images are not seen.
"""

import json
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dprotonet.config import Config
from dprotonet.data.folds import TooFewForFolds
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import RememberedSplits, has_several_labels
from dprotonet.experiment.build.trackers import check_trackers
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.runs.cross_validation import CrossValidation, FoldStep
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.files import write_text
from dprotonet.metrics.classification import accuracy, balanced_accuracy, confusion_matrix
from dprotonet.progress import Progress

Mode = Literal["frozen", "joint"]
Answers = tuple[Tensor, Tensor]  # labels and predictions (N,)
MODES: tuple[Mode, Mode] = ("frozen", "joint")
FOLDS = 3


class Trial(NamedTuple):
    """A step of a fold in a mode."""

    mode: Mode
    step: FoldStep


@dataclass(frozen=True)
class ModeChoice:
    """What both modes come to on the validation images of all folds, and which is to be trained.

    At the end of training, not at the best epoch, which was chosen on the same images. Frozen mode costs far
    less, so joint mode has to lead by more than the standard error of the lead: an image that both modes get
    right or wrong says nothing, so it is that of the difference per image. How much another run of the same
    training would differ is not in it.
    """

    accuracy: dict[Mode, float]
    folds: dict[Mode, list[float]]
    lead: float  # of joint mode
    standard_error: float
    images: int
    balanced: bool = False  # accuracies are means over classes

    @property
    def mode(self) -> Mode:
        return "joint" if self.lead > self.standard_error else "frozen"

    @classmethod
    def of(cls, answers: Mapping[Mode, Sequence[Answers]], *, balanced: bool) -> "ModeChoice":
        """From labels and predictions of the same validation images of every fold, by mode."""
        labels = torch.cat([labels for labels, _ in answers["frozen"]])
        weights = _class_weights(labels) if balanced else torch.ones(len(labels), dtype=torch.float64)
        right = {mode: torch.cat([truth == said for truth, said in answers[mode]]) for mode in MODES}
        difference = weights * (right["joint"].double() - right["frozen"].double())
        return cls(
            {mode: (weights * right[mode]).mean().item() for mode in MODES},
            {mode: [_share(*pair, balanced=balanced) for pair in answers[mode]] for mode in MODES},
            difference.mean().item(),
            difference.std().item() / len(labels) ** 0.5,
            len(labels),
            balanced,
        )

    def told(self) -> str:
        frozen, joint = (100 * self.accuracy[mode] for mode in MODES)
        what = "balanced accuracy" if self.balanced else "accuracy"
        than = "more" if self.mode == "joint" else "not more"
        return (
            f"mode {self.mode}: in {FOLDS} folds of the training images a frozen backbone has {frozen:.1f} % "
            f"{what}, one that learns {joint:.1f} %: a lead of {100 * self.lead:+.1f} points, {than} than "
            f"its standard error of {100 * self.standard_error:.1f} ({self.images} images)"
        )

    def write(self, folder: Path) -> None:
        rule = "joint where its lead is above the standard error of the difference per validation image"
        content = {"mode": self.mode, "rule": rule, **asdict(self)}
        write_text(folder / "mode.json", json.dumps(content, indent=1))


@dataclass(frozen=True)
class ModeTrials:
    """Both modes of one config, whose mode is `auto`, on the same folds, beside the run folder `out`."""

    config: Config
    out: Path
    cache: Path = field(default_factory=default_cache)
    on_scan: Progress | None = None
    splits: RememberedSplits = field(default_factory=RememberedSplits)

    def run(self) -> Generator[Trial, None, ModeChoice]:
        """Train what is missing; what was decided is handed over at the end."""
        if self.config.data.folds:
            raise UserError("--mode auto makes folds of its own; give --folds with --mode frozen or joint")
        if has_several_labels(self.config.data.data):
            raise UserError("--mode auto is not there for several labels per image; give frozen or joint")
        check_trackers(self.config.training)  # of the run that follows; trials are sent to none
        for mode in MODES:
            check_config(final_config(with_mode(self.config, mode)))
        answers: dict[Mode, list[Answers]] = {}
        for mode in reversed(
            MODES
        ):  # joint first: what only a backbone that learns cannot do is told at once
            trial = self._trial(mode)
            try:
                for step in trial.run():
                    yield Trial(mode, step)
            except TooFewForFolds as error:
                told = str(error).removeprefix(f"--folds {FOLDS}: ").rpartition(";")[0]
                remedy = "add images, or give --mode frozen, which suits so few"
                raise UserError(f"--mode auto makes {FOLDS} folds: {told}; {remedy}") from None
            finally:
                for folder in (trial.out, self.place):  # of trials that could not begin
                    with suppress(OSError):
                        folder.rmdir()
            answers[mode] = trial.answers()
            if len(answers[mode]) < FOLDS:
                raise UserError(f"another process is at the trials in {self.place}; wait for it to end")
        training = self.config.training
        return ModeChoice.of(answers, balanced="balanced" in (training.class_weights, training.sampling))

    @property
    def place(self) -> Path:
        return self.out.with_name(self.out.name + ".trials")

    def settle(self, choice: ModeChoice) -> None:
        """Keep what was decided in the run folder, once that stands: then trials are of no further use.

        A run that is stopped later is resumed like any other.
        """
        choice.write(self.out)
        shutil.rmtree(self.place, ignore_errors=True)

    def _trial(self, mode: Mode) -> CrossValidation:
        config = with_mode(self.config, mode)
        data = replace(config.data, folds=FOLDS, fold=0)
        training = replace(config.training, log="", tensorboard=False)
        return CrossValidation(
            replace(config, data=data, training=training),
            self.place / mode,
            cache=self.cache,
            on_scan=self.on_scan,
            splits=self.splits,
        )


def with_mode(config: Config, mode: Mode) -> Config:
    """The same wishes in a mode; what mode and recipe imply is still open."""
    return replace(config, training=replace(config.training, mode=mode))


def _share(labels: Tensor, predicted: Tensor, *, balanced: bool) -> float:
    """The accuracy of a fold."""
    confusion = confusion_matrix(labels, predicted, int(torch.cat([labels, predicted]).max()) + 1)
    return balanced_accuracy(confusion) if balanced else accuracy(confusion)


def _class_weights(labels: Tensor) -> Tensor:
    """Of each image, so that all classes count alike and the mean is 1."""
    counts = labels.bincount().double()
    return len(labels) / ((counts > 0).sum() * counts[labels])
