"""One process at a run folder: whoever trains into it claims it first.

The claim is a lock on the file RUN.lock beside the folder, so that it can be taken before there is a folder
and outlives one that is overwritten. It ends with the process, however that ends; the file is removed when
the work is over. Of the processes of a distributed run only the main one claims.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dprotonet.errors import UserError
from dprotonet.launch import is_main


class AlreadyClaimed(UserError):
    """Another process is at the folder."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder for this process alone; an error if another one is at it."""
    if not is_main():  # torchrun's: the main process has claimed for all
        yield
        return
    place = Path(f"{folder.expanduser().resolve()}.lock")
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AlreadyClaimed(
            f"another process is at {folder}; wait until it has finished or stop it, or name another folder"
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows keeps a file that is open; it does no harm
            place.unlink()
        lock.release()
