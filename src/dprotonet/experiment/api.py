"""The Python API in two functions: `train` and `load`."""

from os import PathLike
from pathlib import Path

from dprotonet.config import Config
from dprotonet.experiment.model import Model
from dprotonet.experiment.trainer import Trainer


def load(folder: str | PathLike[str], *, device: str | None = None) -> Model:
    """A trained model from its run folder."""
    return Model.load(folder, device=device)


def train(config: Config, out: str | PathLike[str], *, overwrite: bool = False) -> Model:
    """Train to the end in silence; `Trainer(config, out).run()` yields events for those who want to watch."""
    trainer = Trainer(config, Path(out), overwrite=overwrite)
    for _ in trainer.run():
        pass
    return load(out)
