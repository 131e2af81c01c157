"""A report onto the disk: whole or not at all, and never over something that is not a report."""

import os
from pathlib import Path

from dprotonet.errors import UserError
from dprotonet.files import write_text
from dprotonet.report.page import MARK

_HEAD = 4096  # bytes in which a report says that it is one


def check_target(path: Path, *, overwrite: bool = False) -> None:
    """Before the work: whether the report may be written there. An earlier report may be replaced."""
    if path.is_dir():
        raise UserError(f"--out {path} is a folder; name a file, such as {path / 'report.html'}")
    if path.exists() and not overwrite and not is_report(path):
        raise UserError(f"--out {path} exists and is not a report; add --overwrite, or name another file")
    above = next(folder for folder in path.absolute().parents if folder.is_dir())
    if not os.access(above, os.W_OK):
        raise UserError(f"--out {path}: {above} may not be written to; name another file with --out")


def is_report(path: Path) -> bool:
    """Whether the file says that it was made here."""
    with path.open("rb") as file:
        return MARK.encode() in file.read(_HEAD)


def write_report(page: str, path: Path) -> None:
    """The page in UTF-8, in place of an earlier one."""
    write_text(path, page)
