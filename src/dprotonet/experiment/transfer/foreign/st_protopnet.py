"""The state dict of an ST-ProtoPNet (Wang et al., 2023): trivial and support prototypes, which vote together.

Its names are ProtoPNet's, those of add-on layers, prototypes and last layer once with `_trivial` and once
with `_support`. The logits of both are added up, as its authors' evaluation does. There are two kinds: for
cropped images with tanh and projections (`add_on_layers_*.0` and `.2`), and for whole images with cosines of
a map that is enlarged twice (`.1` and `.2`).
"""

from pathlib import Path

import torch
from torch import Tensor

from dprotonet.encoder.weights import State
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.foreign.found import (
    Found,
    check_names,
    check_shapes,
    entries_of,
    half_filled,
    owners_of,
    without_prefix,
)
from dprotonet.experiment.transfer.foreign.trunk import architecture_of

ST_PROTOPNET = "st-protopnet"
MARK = "prototype_vectors_trivial"
_SIDES = ("trivial", "support")
_KINDS = ("weight", "bias")


def read_st_protopnet(state: State, path: Path, architecture: str | None) -> Found:
    """Both halves as one network, whose region vectors are those of both nets one behind the other."""
    state = without_prefix(state, MARK)
    unit = "add_on_layers_trivial.1.weight" in state
    layers = (1, 2) if unit else (0, 2)
    names = [f"add_on_layers_{side}.{layer}.{kind}" for side in _SIDES for layer in layers for kind in _KINDS]
    names += [f"prototype_vectors_{side}" for side in _SIDES] + [
        f"last_layer_{side}.weight" for side in _SIDES
    ]
    check_names(path, "ST-ProtoPNet", state, needed=names, allowed=("features.", "ones"))
    prototypes = [state[f"prototype_vectors_{side}"] for side in _SIDES]
    heads = [state[f"last_layer_{side}.weight"] for side in _SIDES]
    _check_shapes(path, state, layers, prototypes, heads)
    trunk = entries_of(state, "features.")
    name = architecture or architecture_of(trunk)
    if unit and name.startswith("vgg"):
        raise UserError(
            f"{path}: an ST-ProtoPNet for whole images with a VGG; whether its last pooling was there is "
            "not in the file, so its logits cannot be promised; a ResNet or DenseNet can be imported"
        )
    return Found(
        kind=ST_PROTOPNET,
        settings={
            "network": "protopnet",
            "activation": "unit" if unit else "tanh",
            "similarity": "projection",
            "dimension": 2 * prototypes[0].shape[1],
        },
        architecture=name,
        trunk=trunk,
        shaping={
            f"{ours}.{kind}": torch.cat([state[f"add_on_layers_{side}.{theirs}.{kind}"] for side in _SIDES])
            for ours, theirs in zip(("first", "second"), layers, strict=True)
            for kind in _KINDS
        },
        prototypes=torch.cat(
            [half_filled(vectors.flatten(1), second=number == 1) for number, vectors in enumerate(prototypes)]
        ),
        last_layer=torch.cat(heads, dim=1),
        owners=[owner for head in heads for owner in owners_of(head)],
    )


def _check_shapes(
    path: Path, state: State, layers: tuple[int, int], prototypes: list[Tensor], heads: list[Tensor]
) -> None:
    width = prototypes[0].shape[1] if prototypes[0].ndim == 4 else 0
    classes = len(heads[0])
    wanted: dict[str, tuple[Tensor, tuple[int, ...]]] = {}
    for side, vectors, head in zip(_SIDES, prototypes, heads, strict=True):
        first, second = (f"add_on_layers_{side}.{layer}.weight" for layer in layers)
        incoming = state[first].shape[1] if state[first].ndim == 4 else 0
        wanted |= {
            f"prototype_vectors_{side}": (vectors, (len(vectors), width, 1, 1)),
            f"last_layer_{side}.weight": (head, (classes, len(vectors))),
            first: (state[first], (width, incoming, 1, 1)),
            second: (state[second], (width, width, 1, 1)),
        }
    check_shapes(path, "ST-ProtoPNet", wanted)
