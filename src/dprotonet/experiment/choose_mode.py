"""`--mode auto`: whether the backbone should learn, decided by cross-validation inside the training images.

    OUT.trials/frozen/fold-1 …    OUT.trials/joint/fold-1 …    while they run; resumed if stopped
    OUT/mode.json                 what was decided, and by which numbers

With few images a backbone that learns forgets more than it finds; with many it wins (docs/training.md). Where
one turns into the other depends on the data, so both are tried on the same folds. Test images are not seen.
"""

import json
import shutil
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dprotonet.config import Config
from dprotonet.errors import UserError
from dprotonet.experiment.build import Progress, RememberedSplits, default_cache
from dprotonet.experiment.cross_validation import CrossValidation, FoldStep
from dprotonet.files import write_text

Mode = Literal["frozen", "joint"]
MODES: tuple[Mode, Mode] = ("frozen", "joint")
FOLDS = 3


class Trial(NamedTuple):
    """A step of a fold in a mode."""

    mode: Mode
    step: FoldStep


@dataclass(frozen=True)
class ModeChoice:
    """Mean validation accuracy over the folds at the end of training, by mode, and the better mode.

    Not that of the best epoch, which was chosen on the same images. Of equals frozen mode, the cheaper.
    """

    accuracy: dict[Mode, float]
    folds: dict[Mode, list[float]]

    @property
    def mode(self) -> Mode:
        return "joint" if self.accuracy["joint"] > self.accuracy["frozen"] else "frozen"

    def told(self) -> str:
        frozen, joint = (100 * self.accuracy[mode] for mode in MODES)
        return (
            f"mode {self.mode}: in {FOLDS} folds of the training images a frozen backbone "
            f"has {frozen:.1f} % of the validation images right, one that learns {joint:.1f} %"
        )

    def write(self, folder: Path) -> None:
        content = {"mode": self.mode, "accuracy": self.accuracy, "folds": self.folds}
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
        results: dict[Mode, list[float]] = {}
        for mode in MODES:
            trial = self._trial(mode)
            for step in trial.run():
                yield Trial(mode, step)
            results[mode] = [_at_the_end(found) for _, found in sorted(trial.results().items())]
            if len(results[mode]) < FOLDS:
                raise UserError(f"another process is at the trials in {self.place}; wait for it to end")
        return ModeChoice({mode: sum(results[mode]) / FOLDS for mode in MODES}, results)

    @property
    def place(self) -> Path:
        return self.out.with_name(self.out.name + ".trials")

    def clear(self) -> None:
        """Trials are of no further use once the run stands."""
        shutil.rmtree(self.place, ignore_errors=True)

    def _trial(self, mode: Mode) -> CrossValidation:
        config = with_mode(self.config, mode)
        data = replace(config.data, folds=FOLDS, fold=0)
        return CrossValidation(
            replace(config, data=data),
            self.place / mode,
            cache=self.cache,
            on_scan=self.on_scan,
            splits=self.splits,
        )


def decided(trials: ModeTrials) -> ModeChoice:
    """Run the trials in silence."""
    running = trials.run()
    while True:
        try:
            next(running)
        except StopIteration as stop:
            choice: ModeChoice = stop.value
            return choice


def with_mode(config: Config, mode: Mode) -> Config:
    """The same wishes in a mode; what mode and recipe imply is still open."""
    return replace(config, training=replace(config.training, mode=mode))


def _at_the_end(found: dict[str, Any]) -> float:
    return float(found["accuracy at the end"])
