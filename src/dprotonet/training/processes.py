"""Several processes at one work (torchrun, accelerate launch): who does what, and where they meet."""

import os
from collections.abc import Callable
from typing import TypeVar

from accelerate import Accelerator
from accelerate.utils import gather_object

from dprotonet.errors import UserError
from dprotonet.training.views import ProcessShare

T = TypeVar("T")


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
    """What `work` gave in the first process of this machine, the only one that has any.

    A mistake of the user that it finds is told in every process: else the others would wait for ever.
    """
    found, wrong = None, None
    try:
        found = None if work is None else work()
    except UserError as error:
        wrong = error
    if accelerator is None or accelerator.num_processes == 1:
        if wrong is not None:
            raise wrong
        return found
    told: list[tuple[T | None, UserError | None]] = gather_object([(found, wrong)])
    for _, mistake in told:
        if mistake is not None:
            raise mistake
    return told[accelerator.process_index - accelerator.local_process_index][0]
