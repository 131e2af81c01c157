"""The rows of a table that is being made, kept beside it so that an interrupted command goes on.

    TABLE.part    first line: what the rows depend on (model, images, settings); then one line per batch

A line is whole once it ends, so what a kill leaves of the last one is cut off and made again. Rows that
depend on anything else are never mixed with ours: that is an error, or they are dropped on request.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprotonet.errors import UserError
from dprotonet.experiment.trained.prediction_table import Row


@dataclass(frozen=True)
class UnfinishedTable:
    """The file TABLE.part; `basis` is what its rows depend on, `batches` how many rows each line has."""

    out: Path
    basis: Mapping[str, Any]
    batches: Sequence[int]

    @property
    def path(self) -> Path:
        return self.out.with_name(f"{self.out.name}.part")

    def begin(self, *, overwrite: bool) -> int:
        """How many batches are there; rows of another basis are refused, or dropped by `overwrite`."""
        lines = self._lines()
        if lines and (complaint := self._complaint(lines)):
            if not overwrite:
                raise UserError(f"{complaint}; --overwrite begins anew, or name another file")
            lines = []
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(self._first)
            return 0
        os.truncate(self.path, sum(len(line) for line in lines))  # what a kill left of a line
        return len(lines) - 1

    def append(self, rows: Sequence[Row]) -> None:
        """One batch, on disk when this returns."""
        line = json.dumps(rows, ensure_ascii=False).encode() + b"\n"
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def rows(self) -> Iterator[Row]:
        """All rows so far, in order."""
        with self.path.open("rb") as file:
            next(file)
            for line in file:
                yield from json.loads(line)

    def remove(self) -> None:
        """When the table is there."""
        self.path.unlink(missing_ok=True)

    @property
    def _first(self) -> bytes:
        return json.dumps(dict(self.basis), ensure_ascii=False).encode() + b"\n"

    def _lines(self) -> list[bytes]:
        """Those that are whole."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]

    def _complaint(self, lines: Sequence[bytes]) -> str:
        """Why these lines cannot be gone on with."""
        try:
            basis, *batches = (json.loads(line) for line in lines)
            whole = [len(batch) for batch in batches] == list(self.batches[: len(batches)])
            others = [key for key in {**self.basis, **basis} if basis.get(key) != self.basis.get(key)]
        except (ValueError, TypeError, AttributeError):
            return f"{self.path} is damaged"
        if others:
            return f"{self.path} was begun with another {', '.join(others)}"
        return "" if whole else f"{self.path} is damaged"
