"""Work that yields its steps and returns what it made, run to its end."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def finished(work: Generator[S, None, T], on_step: Callable[[S], Any] | None = None) -> T:
    """Run it, showing every step to whoever watches, and hand over what it made."""
    while True:
        try:
            step = next(work)
        except StopIteration as stop:
            made: T = stop.value
            return made
        if on_step is not None:
            on_step(step)
