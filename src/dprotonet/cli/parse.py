"""tyro with our spelling: flags without their section, mistakes as one line."""

import contextlib
import io
import re
from typing import Any, TypeVar

import tyro

from dprotonet.errors import UserError

T = TypeVar("T")

_FRAME = re.compile(r"[─│╭╮╰╯]+|^\s*-{4,}\s*$")  # without UTF-8 the lines are dashes

_WRONG = re.compile(r"Error parsing (--[\w-]+):.*?'([^']*)'.*Argument helptext: --\S+ (\S+)")
_KINDS = {"FLOAT": "a number, such as 0.5", "INT": "a whole number"}


def parsed(kind: type[T], words: list[str], *, command: str, default: T | None = None) -> T:
    """The arguments of a command as its dataclass."""
    settings: dict[str, Any] = {} if default is None else {"default": default}
    markers = (tyro.conf.OmitArgPrefixes,)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            arguments: T = tyro.cli(kind, args=words, prog=f"dprotonet {command}", config=markers, **settings)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(one_line(complaint.getvalue())) from None
    return arguments


def one_line(complaint: str) -> str:
    """tyro's framed complaint without the frame and its title."""
    lines = [" ".join(_FRAME.sub(" ", line).split()) for line in complaint.splitlines()[1:]]
    said = " ".join(line if line else ";" for line in lines).strip(" ;")
    if wrong := _WRONG.search(said):
        flag, value, kind = wrong.groups()
        wanted = _KINDS.get(kind.removeprefix("{None}|"), kind.removeprefix("{None}|"))
        return f"{flag} is '{value}', but takes {wanted}; see {said.rpartition('see ')[2] or '--help'}"
    chosen = re.sub(r"'None', |, 'None'(?=\))", "", said)  # choices come in any order
    return re.sub(r"\.? ;", ";", chosen)
