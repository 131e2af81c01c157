"""`--log`: the curves of a run to TensorBoard, MLflow or Weights & Biases, by accelerate's trackers.

What they are sent is what metrics.jsonl has, so that nothing depends on them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from dprotonet.config import Config, TrainingConfig, by_name
from dprotonet.errors import UserError
from dprotonet.training.engine import Position

TRACKERS = ("tensorboard", "mlflow", "wandb")
PROJECT = "dprotonet"


def tracker_names(config: TrainingConfig) -> tuple[str, ...]:
    """The trackers asked for, each once."""
    names = [name.strip() for name in config.log.split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            close = get_close_matches(name, TRACKERS, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            raise UserError(f"--log {name}: unknown tracker; {hint}known: {', '.join(TRACKERS)}")
    return tuple(dict.fromkeys([*names, *["tensorboard"] * config.tensorboard]))


def check_trackers(config: TrainingConfig) -> None:
    """Whether their packages are there; accelerate would go on without."""
    for name in tracker_names(config):
        if find_spec(name) is None:
            raise UserError(f"--log {name} needs an extra: pip install 'dprotonet[{name}]'")


@contextmanager
def tracked(accelerator: Accelerator, config: Config, out: Path) -> Iterator[None]:
    """The trackers of the accelerator, open while the run is trained and closed also when it fails."""
    if not tracker_names(config.training):
        yield
        return
    settings = {name: value if _simple(value) else str(value) for name, value in by_name(config).items()}
    places = {"mlflow": {"run_name": out.name}, "wandb": {"name": out.name, "dir": str(out)}}
    accelerator.init_trackers(PROJECT, config=settings, init_kwargs=places)
    try:
        yield
    finally:
        for tracker in accelerator.trackers:  # `end_training` would also end the group of processes
            tracker.finish()


def log_record(accelerator: Accelerator, record: Mapping[str, Any], position: Position) -> None:
    """A line of metrics.jsonl to all trackers; their axis are optimiser steps, and the epoch is a curve."""
    if not accelerator.trackers:
        return
    event = f"{record['event']}.last" if record.get("phase") == "last" else record["event"]
    numbers = {f"{event}/{name}": value for name, value in record.items() if isinstance(value, int | float)}
    accelerator.log(numbers, step=position.tick if position.steps is None else position.steps)


def _simple(value: Any) -> bool:
    return isinstance(value, bool | str | int | float)
