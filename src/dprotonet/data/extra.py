"""Packages that only some data sets need: the extra `data`."""

from importlib import import_module
from types import ModuleType

from dprotonet.errors import UserError


def import_extra(name: str, *, needed_for: str) -> ModuleType:
    """A module of the extra `data`, or a message that says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UserError(f"{needed_for} needs the package {package}: pip install 'dprotonet[data]'") from None
