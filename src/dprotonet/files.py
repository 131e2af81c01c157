"""Files and folders that are whole or not there: written under a temporary name, then renamed.

A process that is killed in between leaves the temporary name, which is recognised and removed later.
"""

import errno
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

TEMPORARY = re.compile(r"\.[0-9a-f]{12}\.tmp$")
"""How the names end that are written to until a file or folder is whole."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; on success it takes the place of `path`.

    The folder is made if need be. Many processes and threads may write the same file: the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with naming(path):
            yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` to write into; on success it takes the place of `path`.

    Which may be an empty folder, or not there. A process that is killed leaves `.NAME.….tmp` behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        if path.is_dir():
            path.rmdir()  # not every system renames over an empty folder
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_unfinished(path: Path) -> bool:
    """Whether this is the temporary name of a file or folder: nobody's, unless it is being written."""
    return TEMPORARY.search(path.name) is not None


def remove_unfinished(folder: Path, *, of: str = "") -> None:
    """What killed processes left in `folder`, of the file or folder named `of` or of all.

    Nobody else may be writing there.
    """
    names = {part + of for part in ("", ".")}  # of a file, of a folder
    for left in folder.iterdir() if folder.is_dir() else ():
        if is_unfinished(left) and (not of or TEMPORARY.sub("", left.name) in names):
            remove(left)


def remove(path: Path) -> None:
    """A file, or a folder with all in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def put_aside(folder: Path, *, last: str) -> None:
    """Remove a folder: whole from one moment to the next, so that a kill leaves no half of it.

    A folder that cannot be renamed, such as one that Docker mounts, is emptied; the file that says what it
    is, `last`, goes last.
    """
    aside = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.tmp")
    try:
        os.replace(folder, aside)
    except OSError:
        for path in sorted(folder.iterdir(), key=lambda path: path.name == last):
            remove(path)
    else:
        shutil.rmtree(aside, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Text in UTF-8."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


# ── JSON ──

_LARGEST = 2**63  # of whole numbers: none that large fits into a tensor


def json_of(text: str | bytes) -> Any:
    """What JSON says; ValueError, and no other, for all that is none.

    Numbers that no float or tensor can hold are none, nor are texts with half a character in them.
    """
    try:
        found = json.loads(text, parse_int=_int, parse_float=_float)
        if "\\u" in (text if isinstance(text, str) else text.decode()):
            json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be written again
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def read_json(path: Path) -> Any:
    """The same of a file in UTF-8."""
    return json_of(path.read_text(encoding="utf-8"))


def _int(digits: str) -> int:
    if len(digits) > 20 or abs(found := int(digits)) >= _LARGEST:
        raise ValueError(f"{digits[:20]} is too large a number")
    return found


def _float(digits: str) -> float:
    if math.isinf(found := float(digits)):
        raise ValueError(f"{digits[:20]} is too large a number")
    return found


# ── room ──

FULL = (errno.ENOSPC, errno.EFBIG, *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else []))
"""Errors of a disk, a quota or a limit that has no room for a file."""
_CANNOT = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)  # reserve room, on some file systems
_BLOCK = 2**20


def bytes_told(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Where there is no room, the error names the file: one that is open says no name."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL and error.filename is None:
            error.filename = str(path)
        raise


def reserve(file: BinaryIO, size: int) -> None:
    """Room on the disk for all `size` bytes of an open file, or an OSError (`FULL`) at once."""
    file.flush()
    try:
        os.posix_fallocate(file.fileno(), 0, size)
        return
    except AttributeError:  # macOS, Windows
        pass
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    while file.tell() < size:
        file.write(bytes(min(_BLOCK, size - file.tell())))
