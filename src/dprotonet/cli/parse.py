"""tyro with our spelling: flags without their section, mistakes as one line."""

import contextlib
import io
import math
import re
from typing import Any, TypeVar

import tyro

from dprotonet.errors import UserError

T = TypeVar("T")

_DIGITS = {
    int: re.compile(r"[+-]?[0-9]{1,18}"),
    float: re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}
_FRAME = re.compile(r"[─│╭╮╰╯]+|^\s*-{4,}\s*$")  # without UTF-8 the lines are dashes

_WRONG = re.compile(r"Error parsing (--[\w-]+):.*?'([^']*)'.*Argument helptext: --\S+ (\S+)")
_KINDS = {"FLOAT": "a finite number, such as 0.5", "INT": "a whole number"}


_registry = tyro.constructors.ConstructorRegistry()


@_registry.primitive_rule
def _number(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
    """Numbers in the digits that people type; Python would take those of any script, and 1_0 for 10."""
    if info.type not in (int, float):
        return None
    kind = info.type

    def read(words: list[str]) -> int | float:
        (word,) = words
        if not _DIGITS[kind].fullmatch(word):  # nor are nan and inf
            raise ValueError(f"{word!r} is no {'number' if kind is float else 'whole number'}")
        if math.isinf(number := kind(word)):
            raise ValueError(f"{word!r} is too large a number")
        return number

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, (int, float) if kind is float else int),
        str_from_instance=lambda value: [str(value)],
    )


def parsed(kind: type[T], words: list[str], *, command: str, default: T | None = None) -> T:
    """The arguments of a command as its dataclass."""
    settings: dict[str, Any] = {} if default is None else {"default": default}
    markers = (tyro.conf.OmitArgPrefixes,)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            arguments: T = tyro.cli(
                kind,
                args=words,
                prog=f"dprotonet {command}",
                config=markers,
                registry=_registry,
                **settings,
            )
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
