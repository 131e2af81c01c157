"""Packages that only some commands need, each brought by an extra of ours such as `dprotonet[data]`."""

from importlib import import_module
from types import ModuleType

from dprotonet.errors import UserError


def import_extra(name: str, *, extra: str, needed_for: str) -> ModuleType:
    """A module of an extra, or a message that says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UserError(
            f"{needed_for} needs the package {package}: pip install 'dprotonet[{extra}]'"
        ) from None
