"""The state dict of an original ProtoPNet, read into the parts of our network.

Its names: `features.*` (a VGG, ResNet or DenseNet under torchvision's names), `add_on_layers.0` and `.2` (two
1×1 convolutions, a ReLU between and a sigmoid after them), `prototype_vectors` (P, D, h, w),
`last_layer.weight` (C, P), and `ones`, which is a constant. The file is read without running code from it. An
entry that has no place, or a place without an entry, is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dprotonet.encoder.weights import State, read_state
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.foreign.found import Found, owners_of, without_prefix
from dprotonet.experiment.transfer.foreign.trunk import architecture_of

PROTOPNET, TESNET = "protopnet", "tesnet"

_PARTS = ("add_on_layers.0.weight", "add_on_layers.2.weight", "prototype_vectors", "last_layer.weight")
_SHAPING = tuple(f"add_on_layers.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias"))
_CONSTANT = "ones"


@dataclass(frozen=True)
class ProtoPNetFile:
    """The four parts: trunk entries by name, shaping entries, prototypes (P, D, h, w), last layer (C, P)."""

    trunk: State
    shaping: State
    prototypes: Tensor
    last_layer: Tensor

    @classmethod
    def read(cls, path: Path) -> "ProtoPNetFile":
        """Take a file apart; a UserError if it is not a ProtoPNet's, or not the usual one."""
        return cls.of(read_state(path), path)

    @classmethod
    def of(cls, state: State, path: Path) -> "ProtoPNetFile":
        """The same of its entries."""
        state = _without_prefix(state, path)
        trunk = {
            name.removeprefix("features."): value
            for name, value in state.items()
            if name.startswith("features.")
        }
        shaping = {name.removeprefix("add_on_layers."): state[name] for name in _SHAPING if name in state}
        known = {*_SHAPING, "prototype_vectors", "last_layer.weight", _CONSTANT}
        foreign = [name for name in state if name not in known and not name.startswith("features.")]
        if foreign or len(shaping) != len(_SHAPING):
            named = foreign[0] if foreign else next(name for name in _SHAPING if name not in state)
            raise UserError(
                f"{path}: {named} is {'unknown' if foreign else 'missing'}; only ProtoPNets with the regular "
                "add-on layers (two 1×1 convolutions) and a last layer without bias can be imported"
            )
        found = cls(trunk, shaping, state["prototype_vectors"], state["last_layer.weight"])
        found._check(path)
        return found

    @property
    def classes(self) -> int:
        return len(self.last_layer)

    @property
    def dimension(self) -> int:
        return self.prototypes.shape[1]

    @property
    def patch(self) -> tuple[int, int]:
        return self.prototypes.shape[2], self.prototypes.shape[3]

    def owners(self) -> list[int]:
        """The class of each prototype."""
        return owners_of(self.last_layer)

    def architecture(self) -> str:
        """timm's name of the trunk."""
        return architecture_of(self.trunk)

    def found(self, kind: str, architecture: str | None) -> Found:
        """As ProtoPNet, or as TesNet, whose files have the same names; the trunk is recognised."""
        settings: dict[str, Any] = {"network": "protopnet", "dimension": self.dimension}
        if kind == TESNET:
            if self.patch != (1, 1):
                raise UserError(f"prototypes of {self.patch} are not TesNet's, which are 1×1")
            settings["similarity"] = "projection"
        elif self.patch != (1, 1):
            settings |= {"network": "gen-protopnet", "patch": list(self.patch)}
        return Found(
            kind=kind,
            settings=settings,
            architecture=architecture or self.architecture(),
            trunk=self.trunk,
            shaping=self.shaping,
            prototypes=self.prototypes.flatten(1),
            last_layer=self.last_layer,
            owners=self.owners(),
            patch=self.patch,
        )

    def _check(self, path: Path) -> None:
        first, second = self.shaping["0.weight"], self.shaping["2.weight"]
        width = first.shape[0]
        fits = (
            self.prototypes.ndim == 4
            and first.shape[2:] == second.shape[2:] == (1, 1)
            and second.shape[:2] == (width, width)
            and self.dimension == width
            and self.last_layer.ndim == 2
            and self.last_layer.shape[1] == len(self.prototypes)
            and self.classes > 1
        )
        if not fits:
            shapes = [first, second, self.prototypes, self.last_layer]
            told = ", ".join(f"{n} {tuple(t.shape)}" for n, t in zip(_PARTS, shapes, strict=True))
            raise UserError(f"{path}: the shapes are not those of a ProtoPNet: {told}")


def _without_prefix(state: State, path: Path) -> State:
    """Names without what stands before them in a network that was trained in parallel."""
    plain = without_prefix(state, "prototype_vectors")
    missing = [name for name in _PARTS if name not in plain]
    if missing:
        some: Sequence[str] = list(state)[:3]
        raise UserError(
            f"{path} is not the state dict of a ProtoPNet: {missing[0]} is missing, it has {', '.join(some)}"
        )
    return plain
