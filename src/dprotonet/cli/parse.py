"""tyro with our spelling: flags without their section, exit code 2 for mistakes."""

from typing import Any, TypeVar

import tyro

from dprotonet.errors import UserError

T = TypeVar("T")


def parsed(kind: type[T], words: list[str], *, command: str, default: T | None = None) -> T:
    """The arguments of a command as its dataclass."""
    settings: dict[str, Any] = {} if default is None else {"default": default}
    markers = (tyro.conf.OmitArgPrefixes,)
    arguments: T = tyro.cli(kind, args=words, prog=f"dprotonet {command}", config=markers, **settings)
    return arguments


def option_value(words: list[str], name: str) -> str | None:
    """The value of `--name VALUE` or `--name=VALUE` before the real parsing, to load defaults from a file."""
    for position, word in enumerate(words):
        if word == name:
            if position + 1 == len(words):
                raise UserError(f"{name} needs a value")
            return words[position + 1]
        if word.startswith(name + "="):
            return word.split("=", 1)[1]
    return None
