"""Any timm model with its classifier: for explaining networks that are no DProtoNet.

The same spelling as for backbones, `timm:NAME[:WEIGHTS]`, and the same readers of weights, but the head stays
on. Files name heads in many ways: one is known by timm's name for it, else as the last layer of the right
width under one of the usual names. How many classes it has, the model has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from dprotonet.compat import import_guarded
from dprotonet.encoder import weights as sources
from dprotonet.encoder.backbone import BackboneSpec, check_name
from dprotonet.encoder.weights import State
from dprotonet.errors import UserError


@dataclass(frozen=True)
class TimmClassifier:
    """A network from images (B, channels, size, size) to logits (B, classes), and what its weights expect."""

    module: nn.Module
    classes: int
    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


def load_classifier(spec: BackboneSpec) -> TimmClassifier:
    """The model in evaluation mode, for images of its own size."""
    check_name(spec.name)
    if spec.weights == "imagenet":
        module = _from_hub(spec.name)
    elif spec.weights == "none":
        module = _created(spec.name)
    else:
        state = sources.packaged_state() if spec.weights == "packaged" else sources.read_state(spec.weights)
        module = _filled(spec, state)
    if not getattr(module, "num_classes", 0):
        raise UserError(f"{spec.name} has no classes, only features; choose a model with a classifier")
    return _described(module.eval())


def _described(module: Any) -> TimmClassifier:
    settings = module.pretrained_cfg
    channels, _, size = settings["input_size"]
    mean, std = tuple(settings["mean"]), tuple(settings["std"])
    return TimmClassifier(module, module.num_classes, size, channels, mean, std)


def _from_hub(name: str) -> nn.Module:
    settings: dict[str, Any] = {"pretrained": True}
    if overlay := sources.hub_source(name):
        settings["pretrained_cfg_overlay"] = overlay
    try:
        return _created(name, **settings)
    except Exception as error:  # by the hub's library: any kind
        raise sources.hub_error(name, error) from error


def _created(name: str, **settings: Any) -> nn.Module:
    module: nn.Module = import_guarded("timm").create_model(name, **settings)
    return module


def _filled(spec: BackboneSpec, state: State) -> nn.Module:
    """The model with a trunk and a head from the file, which may name them differently."""
    trunk = _created(spec.name, num_classes=0)
    sources.load_state(trunk, state, in_channels=3, source=str(spec))
    heads = _heads(_created(spec.name), state, spec)
    count = len(next(iter(heads.values())))
    module = _created(spec.name, num_classes=count)
    missing = module.load_state_dict({**trunk.state_dict(), **heads}, strict=False).missing_keys
    if missing:
        raise UserError(f"{spec} lacks {missing[0]}; name the timm model that the file was saved from")
    return module


def _heads(whole: nn.Module, state: State, spec: BackboneSpec) -> State:
    """The entries of the classifier, under the names of timm."""
    named: Any = getattr(whole, "pretrained_cfg", {}).get("classifier") or ()
    own = whole.state_dict()
    heads: State = {}
    for name in (named,) if isinstance(named, str) else named:
        theirs = _their_name(name, own[f"{name}.weight"].shape[1:], state)
        if theirs is None:
            raise UserError(
                f"{spec} has no classifier that fits {spec.name}, only features; give another file"
            )
        heads |= {
            f"{name}.{kind}": state[f"{theirs}.{kind}"]
            for kind in ("weight", "bias")
            if f"{theirs}.{kind}" in state
        }
    return heads


def _their_name(name: str, width: Sequence[int], state: State) -> str | None:
    """The layer of the file that is the head `name`, whose inputs are `width`."""
    layers = [key.removesuffix(".weight") for key in state if key.endswith(".weight")]
    fitting = [layer for layer in layers if state[f"{layer}.weight"].shape[1:] == width]
    same = [layer for layer in fitting if layer == name or layer.endswith(f".{name}")]
    usual = [layer for layer in fitting if sources.is_head(layer)]
    return next(reversed(same or usual), None)
