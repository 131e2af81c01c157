"""The Python API in two functions: `train` and `load`."""

from os import PathLike
from pathlib import Path

from dprotonet.config import Config
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.choose_mode import ModeTrials, with_mode
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer


def load(folder: str | PathLike[str], *, device: str | None = None) -> Model:
    """A trained model from its run folder."""
    return Model.load(folder, device=device)


def train(config: Config, out: str | PathLike[str], *, overwrite: bool = False) -> Model:
    """Train to the end in silence; `Trainer(config, out).run()` yields events for those who want to watch."""
    trainer = Trainer(config, Path(out), overwrite=overwrite)
    if config.training.mode == "auto":
        trainer = _of_better_mode(config, Path(out), overwrite=overwrite)
    for _ in trainer.run():
        pass
    return load(out)


def _of_better_mode(config: Config, out: Path, *, overwrite: bool) -> Trainer:
    """In the mode that is better on folds of the training images."""
    RunFolder(out).check_free(overwrite=overwrite)
    trials = ModeTrials(config, out)
    choice = finished(trials.run())
    return Trainer(
        with_mode(config, choice.mode), out, overwrite=overwrite, on_open=lambda: trials.settle(choice)
    )
