"""A command that was started as several processes: by torchrun, `accelerate launch` or Slurm's `srun`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress

from dprotonet.errors import UserError
from dprotonet.launch import is_main, processes

DIVIDED = ("train", "evaluate", "compare", "predict", "quality")
"""Commands whose processes share the images."""
_STRANGERS = (
    ("srun", "SLURM_STEP_NUM_TASKS"),
    ("mpirun", "OMPI_COMM_WORLD_SIZE"),
    ("mpirun", "PMI_SIZE"),
)
"""Launchers that tell processes how many they are in words of their own."""
_SHARED_RUNS = ("benchmark", "reproduce")  # several commands of which may be at one folder


def check_launch(command: str, words: Sequence[str]) -> None:
    """Refuse what would be done by every process again; only the main one need say so."""
    asks = not {"-h", "--help"}.isdisjoint(words)
    if processes() > 1 and command not in DIVIDED and not asks:
        raise UserError(
            f"{command} does not divide its work: {processes()} processes would each do all of it. Start it "
            f"without torchrun or accelerate launch{_instead(command)}"
        )
    if command in DIVIDED and "RANK" not in os.environ and "--folds" not in words:
        for launcher, variable in _STRANGERS:
            count = os.environ.get(variable, "1")
            if count not in ("", "0", "1"):
                raise UserError(
                    f"{launcher} started {count} processes that do not know of each other, and each would do "
                    "all of the work: let torchrun start them (docs/processes.md), or start one process"
                )


def _instead(command: str) -> str:
    if command in _SHARED_RUNS:
        return "; several such commands may share one --out, each takes the runs that no other is at"
    return f"; {', '.join(DIVIDED[:-1])} and {DIVIDED[-1]} divide theirs"


@contextmanager
def others_silent() -> Iterator[None]:
    """Only the main process writes to stdout."""
    if is_main():
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def leave_launch() -> None:
    """After a command that went well: processes part in order."""
    if processes() > 1:
        from dprotonet.training.processes import leave_group

        with suppress(RuntimeError):  # another one was faster
            leave_group()
