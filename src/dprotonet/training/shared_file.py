"""A large file that processes and machines fill together, part by part, whenever each of them starts.

    NAME                the file, once it is whole
    NAME.part           before that, with all the room it takes
    NAME.64.done/0007   part 7 of 64 is written; 0007.lock while a process is at it

A claim ends with the process, however that ends, and the part is then another's. Should two write a part all
the same, it gets the same bytes twice. What is written stays when all are stopped: who comes next goes on.
"""

import os
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from dprotonet.files import remove_unfinished, whole

_PAUSE = 0.2  # seconds between looks at what others do


@dataclass(frozen=True)
class SharedFile:
    """The file `path`, filled in so many `parts`."""

    path: Path
    parts: int

    @property
    def unfinished(self) -> Path:
        return self.path.with_name(f"{self.path.name}.part")

    @property
    def done(self) -> int:
        """How many parts are written."""
        names = os.listdir(self._marks) if self._marks.is_dir() else []
        return sum(not name.endswith(".lock") for name in names)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the file is begun or finished; others wait."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_suffix(".lock"), thread_local=False)
        lock.acquire()
        try:
            yield
        finally:
            if not self.unfinished.exists():  # else it stays, so that all who come lock the same file
                _remove(self.path.with_suffix(".lock"))
            lock.release()

    def is_begun(self, size: int) -> bool:
        """Whether its room of `size` bytes is reserved; ask in `alone`."""
        return self.unfinished.is_file() and self.unfinished.stat().st_size == size

    @contextmanager
    def begin(self) -> Iterator[BinaryIO]:
        """A file to reserve its room in; in `alone`."""
        shutil.rmtree(self._marks, ignore_errors=True)
        for name in (self.path.name, self.unfinished.name):
            remove_unfinished(self.path.parent, of=name)
        with whole(self.unfinished) as temporary, temporary.open("wb") as file:
            yield file

    def claims(self, *, first: int = 0) -> Generator[int | None, None, None]:
        """Parts that are this process's to write, from `first` on; None while all that is left is others'.

        A part counts as written when the next is asked for. It ends when the file is whole.
        """
        order = [*range(first, self.parts), *range(first)]
        while not self.path.exists():
            left = [part for part in order if not self._mark(part).exists()]
            claimed = 0
            for part in left:
                with self._claim(part) as mine:
                    if mine:
                        yield part
                        with suppress(FileNotFoundError):  # another has finished the file meanwhile
                            self._mark(part).touch()
                        claimed += 1
            if not left:
                self._finish()
            elif not claimed:
                yield None
                time.sleep(_PAUSE)

    def abandon(self) -> None:
        """Remove it if nothing is written yet."""
        with self.alone():
            if not self.done and not any(self._marks.glob("*.lock")):
                self.unfinished.unlink(missing_ok=True)
                shutil.rmtree(self._marks, ignore_errors=True)

    def _finish(self) -> None:
        with self.alone():
            if self.unfinished.exists() and self.done == self.parts:
                os.replace(self.unfinished, self.path)
                shutil.rmtree(self._marks, ignore_errors=True)

    @contextmanager
    def _claim(self, part: int) -> Iterator[bool]:
        """Whether the part is still to be written, and by nobody else."""
        if self._mark(part).exists() or not self.unfinished.exists():
            yield False
            return
        self._marks.mkdir(exist_ok=True)
        try:
            lock = FileLock(self._mark(part).with_suffix(".lock"), thread_local=False)
            lock.acquire(timeout=0)
        except (Timeout, FileNotFoundError):  # another's, or all are done
            yield False
            return
        try:
            yield not self._mark(part).exists() and self.unfinished.exists()
        finally:
            _remove(self._mark(part).with_suffix(".lock"))
            lock.release()

    def _mark(self, part: int) -> Path:
        return self._marks / f"{part:04d}"

    @property
    def _marks(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{self.parts}.done")


def _remove(lock: Path) -> None:
    with suppress(OSError):  # Windows keeps a file that is open; it does no harm
        lock.unlink()
