"""What is wrong with a download, in words: names without end cut short, missing official files.

An official file that a reader cannot do without is an error of its own kind, so that `dprotonet data check`
can tell it from a mistake on the command line.
"""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from dprotonet.errors import UserError

SHOWN = 10  # names in a message
_LONGEST = 200  # letters of each


_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


class MissingOfficialFile(UserError):
    """A download that is not complete; `files` says where what belongs, and which archive has it."""

    # One positional argument only: a DataLoader worker hands its exceptions over as type(message).
    def __init__(self, message: str, *, files: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.files = dict(files or {})


def some(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    listed = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…" for name in names]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


def check_root(root: Path, holds: str) -> None:
    """The root must be a folder."""
    if not root.is_dir():
        state = "is a file, not a folder" if root.exists() else "does not exist"
        raise UserError(f"{root} {state}; give the folder that holds {holds}")


def check_complete(root: Path, files: Mapping[str, str]) -> None:
    """All official files (name below the root, and the archive it is part of) must be there."""
    check_root(root, some(files))
    missing = {str(root / name): source for name, source in files.items() if not (root / name).exists()}
    if not missing:
        return
    if inner := [child for child in sorted(root.iterdir()) if all((child / name).exists() for name in files)]:
        raise UserError(f"{root} has the data set in a folder of its own: did you mean {inner[0]}?")
    raise missing_files(missing)


def missing_files(files: Mapping[str, str]) -> MissingOfficialFile:
    """The error for files that should be at these places, each with the archive it comes from."""
    listed = "; ".join(f"{place} (from {source})" for place, source in files.items())
    return MissingOfficialFile(
        f"the download is not complete, missing: {listed}; docs/data.md shows the whole tree", files=files
    )


def finite_number(cell: str) -> float:
    """A finite number in the digits that such tables have; ValueError for all else that Python takes."""
    if not _NUMBER.fullmatch(cell) or math.isinf(found := float(cell)):
        raise ValueError(f"{cell[:40]!r} is not a number")
    return found


@contextmanager
def table_text(path: Path) -> Iterator[TextIO]:
    """A table in CSV, open; what no reader of CSV can make out is an error by the name of the file."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield file
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a table in UTF-8 ({error}); download it anew") from None
