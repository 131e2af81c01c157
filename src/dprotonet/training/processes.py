"""Several processes at one work (torchrun, accelerate launch): who does what, and where they meet."""

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import chain
from typing import TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import gather_object

from dprotonet.errors import UserError
from dprotonet.launch import processes
from dprotonet.training.views import ProcessShare

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""How long processes wait for one another: one that works is waited for, one that died is noticed at once."""


def on_cpus() -> bool:
    """Whether several processes have no GPUs: accelerate has to be told, else each would work on its own."""
    gpus = torch.accelerator.is_available() and not torch.backends.mps.is_available()
    return processes() > 1 and not gpus


class Group(ProcessShare):
    """The processes of a command that needs no accelerator beside them; alone, unless launched otherwise."""

    @classmethod
    def joined(cls, device: str | None = None) -> "Group":
        """With all processes of this launch; `device` is where the command computes, by default the CPU."""
        if processes() == 1:
            return cls()
        state = PartialState(cpu=on_cpus() or device in (None, "cpu"), timeout=PATIENCE)
        return cls(state.process_index, state.num_processes)

    @property
    def is_main(self) -> bool:
        return self.process == 0

    def meet(self) -> None:
        """Wait for all processes."""
        if self.processes > 1:
            PartialState().wait_for_everyone()

    def gathered(self, mine: T) -> list[T]:
        """What every process brings, in their order; all of it for each."""
        return [mine] if self.processes == 1 else gather_object([mine])

    def together(self, mine: Iterable[T]) -> list[T]:
        """Items that were shared out by `of`, in their order again."""
        parts = self.gathered(list(mine))
        longest = max(map(len, parts))
        return list(chain.from_iterable([part[n] for part in parts if n < len(part)] for n in range(longest)))

    def of_main(self, work: Callable[[], T]) -> T | None:
        """What `work` gives in the main process, which alone does it."""
        return told_to_all(self.gathered(_outcome(work if self.is_main else None)), 0)


def local_share(accelerator: Accelerator | None) -> ProcessShare:
    """The part of this process among those of its machine."""
    if accelerator is None or accelerator.num_processes == 1:
        return ProcessShare()
    return ProcessShare(accelerator.local_process_index, int(os.environ["LOCAL_WORLD_SIZE"]))


def meet(accelerator: Accelerator | None) -> None:
    """Wait for all processes."""
    if accelerator is not None:
        accelerator.wait_for_everyone()


def of_local_main(accelerator: Accelerator | None, work: Callable[[], T] | None) -> T | None:
    """What `work` gave in the first process of this machine, the only one that has any."""
    if accelerator is None or accelerator.num_processes == 1:
        return told_to_all([_outcome(work)], 0)
    first = accelerator.process_index - accelerator.local_process_index
    return told_to_all(gather_object([_outcome(work)]), first)


Outcome = tuple[T | None, UserError | None]


def _outcome(work: Callable[[], T] | None) -> Outcome[T]:
    try:
        return (None if work is None else work()), None
    except UserError as error:
        return None, error


def told_to_all(outcomes: list[Outcome[T]], place: int) -> T | None:
    """That of the process at `place`. A mistake that any has found is told in all: else others would wait."""
    for _, mistake in outcomes:
        if mistake is not None:
            raise mistake
    return outcomes[place][0]


def leave_group() -> None:
    """End a distributed run, if this is one: communication threads that outlive it abort the interpreter."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
