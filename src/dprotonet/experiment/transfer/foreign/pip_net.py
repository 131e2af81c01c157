"""The state dict of a PIP-Net (Nauta et al., 2023): prototypes are channels of the backbone's softmax.

Its names: `_net.*` (a ResNet or ConvNeXt of torchvision's, whose last strides are 1), `_add_on.0` (a 1×1
convolution, where the number of prototypes was chosen), `_classification.weight` (C, P) and its
`normalization_multiplier`, which only training uses. As when it predicts, presences below 0.1 count as none.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.encoder.weights import State
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.foreign.found import Found, check_names, entries_of, without_prefix
from dprotonet.experiment.transfer.foreign.trunk import architecture_of, as_timm

PIP_NET = "pip-net"
MARK = "_classification.weight"
LEAST_PRESENCE = 0.1
UNSTRIDED = 2  # its ResNets and `convnext_tiny_26`; `convnext_tiny_13` has one


def read_pip_net(state: State, path: Path, architecture: str | None, unstrided: int | None) -> Found:
    """What a checkpoint of its code, or the state dict in it, holds."""
    state = without_prefix(state, MARK)
    if "_classification.bias" in state:
        raise UserError(f"{path}: a PIP-Net with a bias in its last layer; prototype layers here have none")
    allowed = ("_net.", "_add_on.0.", "_classification.normalization_multiplier", "_multiplier")
    check_names(path, "PIP-Net", state, needed=(MARK,), allowed=allowed)
    settings = {"unstrided": UNSTRIDED if unstrided is None else unstrided, "least_presence": LEAST_PRESENCE}
    return channels_found(
        state[MARK],
        trunk=as_timm(entries_of(state, "_net.")),
        convolution=entries_of(state, "_add_on.0."),
        settings=settings,
        architecture=architecture,
        path=path,
    )


def channels_found(
    last_layer: Tensor,
    *,
    trunk: State,
    convolution: State,
    settings: dict[str, Any],
    architecture: str | None,
    path: Path,
) -> Found:
    """A network whose prototypes are channels, from its last layer (C, P) before its ReLU."""
    count = last_layer.shape[1]
    if not convolution:  # the softmax is of the backbone's own channels
        same = torch.eye(count)[:, :, None, None]
        convolution = {"weight": same, "bias": torch.zeros(count)}
    convolution = {"bias": torch.zeros(count), **convolution}
    weight = convolution.get("weight")
    if weight is None or weight.ndim != 4 or (len(weight), *weight.shape[2:]) != (count, 1, 1):
        raise UserError(f"{path}: the 1×1 convolution has not one channel for each of {count} prototypes")
    points = last_layer.relu()
    return Found(
        kind=PIP_NET,
        settings={"network": "pip-net", "dimension": count, **settings},
        architecture=architecture or architecture_of(trunk),
        trunk=trunk,
        shaping={f"0.{name}": value for name, value in convolution.items()},
        prototypes=torch.eye(count),
        last_layer=points,
        owners=points.argmax(dim=0).tolist(),
    )
