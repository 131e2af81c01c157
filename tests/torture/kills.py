"""Killing a process (SIGKILL) before its n-th change of a file, or at a moment, and going on as a user would.

The work runs in a forked child. An audit hook sees every file that Python opens for writing, renames, removes
or makes, so no operation has to be known beforehand.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_CHANGES = ("rename", "remove", "mkdir", "rmdir", "truncate", "chmod", "link", "symlink", "utime")
_EVENTS = {f"os.{name}" for name in _CHANGES} | {"shutil.rmtree"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Work = Callable[[Path], None]


@dataclass
class _Watch:
    """Changes below a folder: each is counted, and before the one numbered `last` the process is killed."""

    below: str = ""
    count: int = 0
    last: int | None = None

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.below or not (event in _EVENTS or _opens_to_write(event, arguments)):
            return
        if not any(
            str(item).startswith(self.below) for item in arguments if isinstance(item, str | os.PathLike)
        ):
            return
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1


_watch = _Watch()
_hooked = False


def _opens_to_write(event: str, arguments: tuple[object, ...]) -> bool:
    return event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & _WRITING)


def _watching(below: Path, last: int | None) -> None:
    """A hook cannot be taken away again: there is one, which looks nowhere unless told."""
    global _hooked
    if not _hooked:
        sys.addaudithook(lambda event, arguments: _watch(event, arguments))
        _hooked = True
    _watch.below, _watch.count, _watch.last = str(below), 0, last


def changes_of(work: Work, place: Path) -> int:
    """Do the work to its end; how many changes of files below `place` it took."""
    _watching(place, None)
    try:
        work(place)
        return _watch.count
    finally:
        _watch.below = ""


def killed_at_change(work: Work, place: Path, number: int) -> bool:
    """The work in another process, killed before that change; False if it came to its end."""
    child = os.fork()
    if child == 0:
        _in_child(work, place, lambda: _watching(place, number))
    return _ended(child)


def killed_after(work: Work, place: Path, seconds: float) -> bool:
    """The work in another process, killed at a moment, wherever it is; False if it came to its end."""
    child = os.fork()
    if child == 0:
        _in_child(work, place, lambda: None)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)  # a process that has ended waits to be asked, so the number is its own
    return _ended(child)


def _in_child(work: Work, place: Path, prepare: Callable[[], None]) -> None:
    code = 1
    try:
        prepare()
        work(place)
        code = 0
    except BaseException as error:  # nothing of the parent may run in the child
        os.write(2, f"in the killed process: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _ended(child: int) -> bool:
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise AssertionError("the work failed where it was not killed; its message is above")
    return False


def spread(generator: random.Random, changes: int, count: int) -> Sequence[int]:
    """So many places among the changes, one drawn from each stretch of equal length."""
    count = min(count, changes)
    edges = [number * changes // count for number in range(count + 1)]
    return [generator.randrange(first, last) for first, last in pairwise(edges)]
