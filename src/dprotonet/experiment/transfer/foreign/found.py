"""What a file of another program holds, in the terms of our network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.encoder.weights import State
from dprotonet.errors import UserError


@dataclass(frozen=True)
class Found:
    """A prototype network that was trained elsewhere.

    `settings` are those of our network section, apart from the backbone. Trunk and shaping hold the entries
    of our modules; prototypes (P, D), the last layer (C, P), and whose each prototype is.
    """

    kind: str
    settings: Mapping[str, Any]
    architecture: str | None  # timm's name of the trunk, if it is known
    trunk: State
    shaping: State
    prototypes: Tensor
    last_layer: Tensor
    owners: Sequence[int]
    patch: tuple[int, int] = (1, 1)

    @property
    def classes(self) -> int:
        return len(self.last_layer)


def owners_of(last_layer: Tensor) -> list[int]:
    """The class of each prototype (P,), which files do not say; last layer (C, P).

    Prototypes are in the order of their classes. After pruning a class may have fewer: then the largest
    weight of the last layer tells. Where that is in no such order, each class has the same number.
    """
    classes, prototypes = last_layer.shape
    strongest: list[int] = last_layer.argmax(dim=0).tolist()
    if strongest == sorted(strongest) and set(strongest) == set(range(classes)):
        return strongest
    count, rest = divmod(prototypes, classes)
    if rest:
        raise UserError(
            f"{prototypes} prototypes cannot be divided among {classes} classes, and the "
            "last layer does not tell whose they are; import the model before it was pruned"
        )
    return [number // count for number in range(prototypes)]


def without_prefix(state: State, last: str) -> State:
    """Names without what stands before them, `module.` after training in parallel; `last` is an entry."""
    ends = [name for name in state if name == last or name.endswith(f".{last}")]
    prefix = ends[0].removesuffix(last) if len(ends) == 1 else ""
    return {name.removeprefix(prefix): value for name, value in state.items()}


def entries_of(state: State, prefix: str) -> State:
    """The entries below a name, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def check_names(
    path: Path, kind: str, state: State, *, needed: Sequence[str], allowed: Sequence[str]
) -> None:
    """An entry that has no place, or a place without an entry, is an error; `allowed` are also prefixes."""
    missing = [name for name in needed if name not in state]
    foreign = [name for name in state if name not in needed and not name.startswith(tuple(allowed))]
    if missing or foreign:
        word = f"{missing[0]} is missing" if missing else f"{foreign[0]} is unknown"
        raise UserError(f"{path}: {word}; this is no {kind} that can be imported (docs/import.md)")


def check_shapes(path: Path, kind: str, shapes: Mapping[str, tuple[Tensor, tuple[int, ...]]]) -> None:
    """Each entry and the shape that it must have by the others."""
    for name, (value, wanted) in shapes.items():
        if tuple(value.shape) != wanted:
            raise UserError(
                f"{path}: the shapes are not those of a {kind}: {name} is {tuple(value.shape)}, not {wanted}"
            )


def half_filled(vectors: Tensor, *, second: bool) -> Tensor:
    """Vectors (P, D) as (P, 2 D), zeros in the other half."""
    nothing = torch.zeros_like(vectors)
    return torch.cat([nothing, vectors] if second else [vectors, nothing], dim=1)
