"""Packages of the extra `onnx`, which only export and exported models need."""

from importlib import import_module
from types import ModuleType

from dprotonet.errors import UserError


def import_onnx_extra(name: str) -> ModuleType:
    """A module of the extra `onnx`, or a message that says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(f"ONNX needs the package {name}: pip install 'dprotonet[onnx]'") from None
