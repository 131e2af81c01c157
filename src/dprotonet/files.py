"""Files and folders that are whole or not there: written under a temporary name, then renamed."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; on success it takes the place of `path`.

    The folder is made if need be. Many processes and threads may write the same file: the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
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


def remove_unfinished(folder: Path) -> None:
    """What killed processes left of folders in `folder`; nobody else may be writing there."""
    for left in folder.glob(".*.tmp"):
        shutil.rmtree(left, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Text in UTF-8."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
