"""The state dict of an original ProtoPNet, read into the parts of our network.

Its names: `features.*` (a VGG, ResNet or DenseNet under torchvision's names), `add_on_layers.0` and `.2` (two
1×1 convolutions, a ReLU between and a sigmoid after them), `prototype_vectors` (P, D, h, w),
`last_layer.weight` (C, P), and `ones`, which is a constant. The file is read without running code from it. An
entry that has no place, or a place without an entry, is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dprotonet.compat import import_guarded
from dprotonet.encoder.weights import State, read_state
from dprotonet.errors import UserError

_PARTS = ("add_on_layers.0.weight", "add_on_layers.2.weight", "prototype_vectors", "last_layer.weight")
_SHAPING = tuple(f"add_on_layers.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias"))
_CONSTANT = "ones"
_ARCHITECTURES = {  # by an entry that only this family has
    "conv1.weight": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    "features.0.weight": tuple(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
    "features.conv0.weight": ("densenet121", "densenet161", "densenet169", "densenet201"),
}


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
        state = _without_prefix(read_state(path), path)
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
        """The class of each prototype, which the file does not say.

        Prototypes are in the order of their classes. After pruning a class may have fewer: then the largest
        weight of the last layer tells. Where that is in no such order, each class has the same number.
        """
        strongest: list[int] = self.last_layer.argmax(dim=0).tolist()
        if strongest == sorted(strongest) and set(strongest) == set(range(self.classes)):
            return strongest
        count, rest = divmod(len(self.prototypes), self.classes)
        if rest:
            raise UserError(
                f"{len(self.prototypes)} prototypes cannot be divided among {self.classes} classes, and the "
                "last layer does not tell whose they are; import the model before it was pruned"
            )
        return [number // count for number in range(len(self.prototypes))]

    def architecture(self) -> str:
        """timm's name of the trunk, by names and shapes of its entries."""
        family = next((names for entry, names in _ARCHITECTURES.items() if entry in self.trunk), ())
        for name in family:
            if _fits(name, self.trunk):
                return name
        some = ", ".join(list(self.trunk)[:3])
        raise UserError(
            f"the trunk is no ResNet, VGG or DenseNet that is known here (it has {some}, …); "
            "name its timm model with --backbone timm:NAME"
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
    ends = [name for name in state if name == "prototype_vectors" or name.endswith(".prototype_vectors")]
    prefix = ends[0].removesuffix("prototype_vectors") if len(ends) == 1 else ""
    plain = {name.removeprefix(prefix): value for name, value in state.items()}
    missing = [name for name in _PARTS if name not in plain]
    if missing:
        some: Sequence[str] = list(state)[:3]
        raise UserError(
            f"{path} is not the state dict of a ProtoPNet: {missing[0]} is missing, it has {', '.join(some)}"
        )
    return plain


def _fits(name: str, trunk: State) -> bool:
    """Whether a timm model has exactly these entries, apart from its classifier's."""
    with torch.device("meta"):
        model = import_guarded("timm").create_model(name, num_classes=0)
    own = {
        entry: value.shape
        for entry, value in model.state_dict().items()
        if not entry.startswith("pre_logits.") and not entry.endswith("num_batches_tracked")
    }
    given = {
        entry: value.shape for entry, value in trunk.items() if not entry.endswith("num_batches_tracked")
    }
    return own == given
