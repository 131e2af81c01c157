"""The rows of a table that is being made, kept beside it so that an interrupted command goes on.

    TABLE.part    first line: what all rows depend on (model, settings); then one line per batch, each row
                  with the stamp of its file

A line is whole once it ends, so what a kill leaves of the last one is cut off and made again. A row counts as
long as its file has the same stamp; rows that depend on another model or other settings are never mixed with
ours: that is an error, or they are dropped on request.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprotonet.errors import UserError
from dprotonet.experiment.trained.prediction_table import Row, part_of
from dprotonet.files import json_of, naming

Stamped = Sequence[tuple[str, Row]]  # rows with the stamps of their files


@dataclass
class UnfinishedTable:
    """The file TABLE.part; `basis` is what all rows depend on, `width` how many cells a row has."""

    out: Path
    basis: Mapping[str, Any]
    width: int
    places: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)  # stamp: line and row in it

    @property
    def path(self) -> Path:
        return part_of(self.out)

    def begin(self, *, overwrite: bool) -> None:
        """Find what is there; rows of another basis are refused, or dropped by `overwrite`."""
        if self._complete():
            if not (complaint := self._complaint()):
                return
            if not overwrite:
                raise UserError(f"{complaint}; --overwrite begins anew, or name another file")
        self.places.clear()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self.path):
            self.path.write_bytes(json.dumps(dict(self.basis), ensure_ascii=False).encode() + b"\n")

    def append(self, rows: Stamped) -> None:
        """One batch, on disk when this returns."""
        line = json.dumps(rows, ensure_ascii=False).encode() + b"\n"
        with naming(self.path), self.path.open("ab") as file:
            place = file.tell()
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._remember(place, rows)

    def rows(self, stamps: Sequence[str]) -> Iterator[Row]:
        """The rows with these stamps, in this order, all of which must be there."""
        known, batch = -1, []
        with self.path.open("rb") as file:
            for stamp in stamps:
                place, number = self.places[stamp]
                if place != known:
                    file.seek(place)
                    known, batch = place, json_of(file.readline())
                yield batch[number][1]

    def remove(self) -> None:
        """When the table is there."""
        self.path.unlink(missing_ok=True)

    def _remember(self, place: int, rows: Stamped) -> None:
        self.places |= {stamp: (place, number) for number, (stamp, _) in enumerate(rows)}

    def _complete(self) -> bool:
        """Whether a first line is there, and what a kill left of the last one is gone."""
        if not self.path.exists():
            return False
        with self.path.open("r+b") as file:
            end = sum(len(line) for line in file if line.endswith(b"\n"))
            file.truncate(end)
        return end > 0

    def _complaint(self) -> str:
        """Why these lines cannot be gone on with; else their rows are remembered."""
        try:
            with self.path.open("rb") as file:
                basis = json_of(file.readline())
                others = [key for key in {**self.basis, **basis} if basis.get(key) != self.basis.get(key)]
                if others:
                    return f"{self.path} was begun with another {', '.join(others)}"
                place = file.tell()
                for line in file:
                    self._remember(place, self._checked(json_of(line)))
                    place += len(line)
        except (ValueError, TypeError, AttributeError):
            return f"{self.path} is damaged"
        return ""

    def _checked(self, rows: Any) -> Stamped:
        if not rows or not all(isinstance(stamp, str) and len(row) == self.width for stamp, row in rows):
            raise ValueError("not the rows of a batch")
        found: Stamped = rows
        return found
