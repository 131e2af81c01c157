"""What is fuzzed: a kind of input, drawn by number, and what is done with it."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dprotonet.errors import ComputationError, UserError

REFUSALS = (UserError, ComputationError)
"""How bad input may end: an error with words for people, and no other."""


@dataclass(frozen=True)
class Case:
    """One input: which of the target's kinds it is, and its bytes."""

    kind: str
    content: bytes


class Target(Protocol):
    """Draws inputs and takes them. Whatever `feed` raises that is none of `REFUSALS` is a defect."""

    def draw(self, generator: random.Random) -> Case: ...

    def feed(self, case: Case) -> None: ...

    def left(self) -> Iterable[str]:
        """What inputs left behind that should not be there."""
        ...


class Unexpected(Exception):
    """An answer that breaks a promise, such as status 500."""


Opener = Callable[[Path], Target]
"""Makes a target in a folder of its own; called in the process that will feed it."""


def drawn(target: Target, name: str, seed: int, number: int) -> Case:
    """Input `number` of a target: always the same one."""
    return target.draw(random.Random(f"{seed}/{name}/{number}"))
