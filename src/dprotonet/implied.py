"""Values that nobody gave: marked, so that a recipe may say otherwise, and else like others of their type."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class Implied:
    """Marks a value that nobody gave. It computes and compares like any other of its type."""


class _ImpliedStr(Implied, str): ...


class _ImpliedInt(Implied, int): ...


class _ImpliedFloat(Implied, float): ...


class _ImpliedTuple(Implied, tuple[Any, ...]): ...


IMPLIED: Mapping[type, Any] = {
    str: _ImpliedStr,
    int: _ImpliedInt,
    float: _ImpliedFloat,
    tuple: _ImpliedTuple,
}


@typing.dataclass_transform(frozen_default=True)
def settings(kind: type[T]) -> type[T]:
    """A frozen dataclass whose defaults are implied; only those of bools, which cannot be marked, are not."""
    for name, value in list(vars(kind).items()):
        if name in kind.__annotations__ and type(value) in IMPLIED:
            setattr(kind, name, IMPLIED[type(value)](value))
    return dataclass(frozen=True)(kind)
