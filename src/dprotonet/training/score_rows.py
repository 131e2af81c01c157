"""Scores of many images (N, P), a row each: in memory, or on disk where they are many.

The file has no name once it is open, so that nothing is left of it however the process ends. It is read and
written, not mapped: a mapped file counts as memory of the process, and a full disk would kill it.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.files import FULL, bytes_told, reserve

IN_MEMORY = 2**29
"""Bytes of scores that are kept in memory; more go to disk."""
_BLOCK = 2**26  # bytes that are read at a time
_FLOAT = 4


@dataclass(frozen=True)
class Room:
    """That the scores of so many images by so many prototypes take, in `folder` if it is on disk."""

    images: int
    prototypes: int
    folder: Path

    @property
    def needed(self) -> int:
        return self.images * self.prototypes * _FLOAT

    @property
    def on_disk(self) -> bool:
        return self.needed > IN_MEMORY

    @property
    def told(self) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        return (
            f"the scores of {self.images:,} images by {self.prototypes:,} prototypes: "
            f"they take {bytes_told(self.needed)}, and {bytes_told(free)} are free in {self.folder}"
        )

    def named(self) -> Path:
        """An empty file there; an error if there is no room for what will be in it."""
        told = self.told
        if self.needed > shutil.disk_usage(self.folder).free:
            raise UserError(f"not enough room for {told}; {_REMEDY}")
        handle, name = tempfile.mkstemp(prefix="scores-", suffix=".tmp", dir=self.folder)
        os.close(handle)
        return Path(name)

    def reserve(self, file: BinaryIO) -> None:
        """All of it for an open file, or an error."""
        try:
            reserve(file, self.needed)
        except OSError as error:
            if error.errno in FULL:
                raise UserError(f"not enough room for {self.told} ({error.strerror}); {_REMEDY}") from None
            raise


_REMEDY = "make room, or name another folder (--cache in training, elsewhere the variable DPROTONET_CACHE)"


@dataclass(frozen=True)
class ScoreRows:
    """Float32 rows on the CPU; of `columns`, or of all."""

    shape: tuple[int, int]
    _tensor: Tensor | None = None
    _file: BinaryIO | None = None
    columns: Tensor | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def empty(cls, room: Room) -> "ScoreRows":
        """To be `put`."""
        if not room.on_disk:
            return cls((room.images, room.prototypes), torch.empty(room.images, room.prototypes))
        path = room.named()
        rows = cls.opened(path, room)
        nameless(path)
        rows.reserve(room)
        return rows

    @classmethod
    def of(cls, tensor: Tensor) -> "ScoreRows":
        """Scores that are in memory already."""
        return cls((tensor.shape[0], tensor.shape[1]), tensor.detach().float().cpu())

    @classmethod
    def opened(cls, path: Path, room: Room) -> "ScoreRows":
        """The file of `Room.named`, by each process that writes or reads it."""
        return cls((room.images, room.prototypes), _file=path.open("r+b"))

    def reserve(self, room: Room) -> None:
        assert self._file is not None
        room.reserve(self._file)

    def __len__(self) -> int:
        return self.shape[0]

    def put(self, first: int, scores: Tensor) -> None:
        """Rows from `first` on."""
        scores = scores.detach().float().cpu().contiguous()
        if self._tensor is not None:
            self._tensor[first : first + len(scores)] = scores
            return
        assert self._file is not None
        with self._lock:
            self._file.seek(first * self.shape[1] * _FLOAT)
            self._file.write(scores.numpy().tobytes())
            self._file.flush()

    def seen_by(self, columns: Tensor) -> "ScoreRows":
        """The same rows with some columns only, (P,) bool or numbers."""
        return replace(self, columns=columns.cpu())

    def __getitem__(self, rows: int | slice | Tensor) -> Tensor:
        found = self._rows(rows) if self._tensor is None else self._tensor[rows]
        return found if self.columns is None else found[..., self.columns]

    def blocks(self, rows: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Numbers of rows and the rows themselves, some at a time; of all rows, or of `rows`."""
        wanted = torch.arange(len(self)) if rows is None else rows.cpu()
        for some in wanted.split(max(1, _BLOCK // (self.shape[1] * _FLOAT))):
            together = len(some) == int(some[-1] - some[0]) + 1
            yield some, self[int(some[0]) : int(some[-1]) + 1] if together else self[some]

    def _rows(self, rows: int | slice | Tensor) -> Tensor:
        if isinstance(rows, int):
            return self._read(rows, 1)[0]
        if isinstance(rows, slice):
            first, stop, step = rows.indices(len(self))
            return self._read(first, stop - first)[::step]
        return torch.cat([self._read(row, 1) for row in rows.tolist()])

    def _read(self, first: int, count: int) -> Tensor:
        assert self._file is not None
        data = bytearray(count * self.shape[1] * _FLOAT)
        with self._lock:
            self._file.seek(first * self.shape[1] * _FLOAT)
            read = self._file.readinto(data)  # type: ignore[attr-defined]
        if read != len(data):
            raise OSError(f"the file of scores ends before row {first + count}")
        return torch.frombuffer(data, dtype=torch.float32).view(count, -1)


def nameless(path: Path) -> None:
    """All who need the file have opened it: with the last of them it goes, however that ends."""
    with suppress(OSError):  # Windows keeps a file that is open: there it stays behind
        path.unlink()
