"""A folder that CaBRNet saved: `model_arch.yml` says what the network is, `model_state.pth` has its weights.

Of its architectures ProtoPNet and PIP-Net are read. The optimiser's state, `state.pickle` and all else in the
folder are left alone. YAML is read without objects of Python.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dprotonet.compat import import_guarded
from dprotonet.encoder.backbone import strided_stages
from dprotonet.encoder.weights import State, read_state
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.foreign.found import (
    Found,
    check_names,
    check_shapes,
    entries_of,
    owners_of,
)
from dprotonet.experiment.transfer.foreign.pip_net import channels_found
from dprotonet.experiment.transfer.foreign.trunk import as_timm

CABRNET = "cabrnet"
ARCHITECTURE, STATE = "model_arch.yml", "model_state.pth"
_LAYERS = {"resnet": "layer4", "vgg": "features", "convnext": "features"}
_ADD_ON = (("Conv2d", "ReLU", "Conv2d"), ("Conv2d", "ReLU", "Conv2d", "Sigmoid"))
_LOG = ("ProtoPNetSimilarity", "LegacyProtoPNetSimilarity")
_SIMILARITIES = (*_LOG, "CosineSimilarity")


def read_cabrnet(folder: Path, architecture: str | None) -> Found:
    """The network of the folder; a UserError where it cannot be one of ours."""
    plan = _Plan.read(folder / ARCHITECTURE)
    state = read_state(folder / STATE)
    trunk = as_timm(entries_of(state, "extractor.convnet."))
    name = architecture or plan.arch
    settings = {"unstrided": plan.unstrided(name)}
    reading = {"ProtoPNet": _protopnet, "PIPNet": _pip_net}[plan.kind]
    found = reading(plan, state, trunk, name, settings, folder / STATE)
    return replace(found, kind=f"{CABRNET} {plan.kind}")


@dataclass(frozen=True)
class _Plan:
    """What model_arch.yml says, checked."""

    path: Path
    kind: str
    arch: str
    backbone: Mapping[str, Any]
    layers: Mapping[str, Mapping[str, Any]]  # of the add-on, by name, in order
    similarity: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_Plan":
        content = _yaml(path)
        kind = str(_part(path, content, "top_arch").get("name", "unknown"))
        if kind not in ("ProtoPNet", "PIPNet"):
            raise UserError(
                f"{path}: a {kind} of CaBRNet; of its networks ProtoPNet and PIPNet can be imported"
            )
        extractor = _part(path, content, "extractor")
        backbone = _part(path, extractor, "backbone")
        parts = [value for value in extractor.values() if isinstance(value, dict)]
        pipelines = [part for part in parts if "source_layer" in part]
        if len(pipelines) > 1:
            raise UserError(f"{path}: {len(pipelines)} layers are extracted; networks here have one")
        pipeline = pipelines[0] if pipelines else {**extractor, "source_layer": backbone.get("layer")}
        arch = str(backbone.get("arch", "")).lower()
        _check_layer(path, arch, pipeline.get("source_layer"))
        added = pipeline.get("add_on") or {}
        layers = {name: value for name, value in added.items() if isinstance(value, dict)}
        return cls(
            path, kind, arch, backbone, layers, _part(path, {"similarity": {}, **content}, "similarity")
        )

    def unstrided(self, name: str) -> int:
        """How many of the trunk's stages lost their stride by `stride_divider`."""
        operations = self.backbone.get("postprocess") or {}
        if not operations:
            return 0
        rule = operations.get("stride_divider", {})
        if set(operations) != {"stride_divider"} or rule.get("ratio") != 2:
            raise UserError(f"{self.path}: of the backbone's postprocess only stride_divider by 2 is known")
        stages = strided_stages(import_guarded("timm").create_model(name, num_classes=0))
        least = rule.get("min_channels", 0)
        divided = [[one.in_channels > least for one in stage] for stage in stages]
        count = sum(all(stage) for stage in divided)
        if divided != [[number >= len(stages) - count] * len(s) for number, s in enumerate(divided)]:
            raise UserError(f"{self.path}: stride_divider takes the stride from other than the last stages")
        return count


def _protopnet(
    plan: _Plan, state: State, trunk: State, name: str, settings: dict[str, Any], path: Path
) -> Found:
    types = tuple(str(layer.get("type")) for layer in plan.layers.values())
    similarity = str(plan.similarity.get("name"))
    if types not in _ADD_ON:
        raise UserError(
            f"{plan.path}: the add-on is {', '.join(types) or 'nothing'}; what can be imported is "
            f"{' or '.join(', '.join(known) for known in _ADD_ON)}"
        )
    if similarity not in _SIMILARITIES:
        raise UserError(f"{plan.path}: similarity {similarity}; known: {', '.join(_SIMILARITIES)}")
    shaping = _shaping(plan, state)
    needed = ["classifier.prototypes", "classifier.last_layer.weight"]
    allowed = ("extractor.", "classifier.proto_class_map", "classifier.similarity_layer.")
    check_names(path, "ProtoPNet of CaBRNet", state, needed=needed, allowed=allowed)
    prototypes, last_layer = (state[entry] for entry in needed)
    width = len(shaping["2.weight"])
    if prototypes.ndim != 4 or last_layer.ndim != 2:
        raise UserError(f"{path}: the shapes of prototypes and last layer are not those of a ProtoPNet")
    check_shapes(
        path,
        "ProtoPNet of CaBRNet",
        {
            "classifier.prototypes": (prototypes, (len(prototypes), width, 1, 1)),
            "classifier.last_layer.weight": (last_layer, (len(last_layer), len(prototypes))),
        },
    )
    chosen = {"similarity": "cosine"} if similarity not in _LOG else _log(plan)
    activation = "sigmoid" if types[-1] == "Sigmoid" else "none"
    return Found(
        kind=CABRNET,
        settings={"network": "protopnet", "dimension": width, "activation": activation, **chosen, **settings},
        architecture=name,
        trunk=trunk,
        shaping=shaping,
        prototypes=prototypes.flatten(1),
        last_layer=last_layer,
        owners=_owners(state, last_layer),
    )


def _pip_net(
    plan: _Plan, state: State, trunk: State, name: str, settings: dict[str, Any], path: Path
) -> Found:
    if "classifier.last_layer.bias" in state:
        raise UserError(f"{path}: a PIP-Net with a bias in its last layer; prototype layers here have none")
    if len(plan.layers) > 1 or any(layer.get("type") != "Conv2d" for layer in plan.layers.values()):
        raise UserError(f"{plan.path}: the add-on of a PIP-Net is one 1×1 convolution or nothing")
    needed = ("classifier.last_layer.weight",)
    allowed = ("extractor.", "classifier.prototypes", "classifier.normalization_multiplier")
    check_names(path, "PIP-Net of CaBRNet", state, needed=needed, allowed=allowed)
    convolution = {}
    for added in plan.layers:
        convolution = entries_of(state, f"extractor.add_on.{added}.")
    return channels_found(
        state[needed[0]],
        trunk=trunk,
        convolution=convolution,
        settings=settings,
        architecture=name,
        path=path,
    )


def _shaping(plan: _Plan, state: State) -> State:
    """The two convolutions under our names."""
    names = [name for name, layer in plan.layers.items() if layer.get("type") == "Conv2d"]
    shaping: State = {}
    for ours, name in zip((0, 2), names, strict=True):
        entries = entries_of(state, f"extractor.add_on.{name}.")
        if "weight" not in entries or entries["weight"].shape[2:] != (1, 1):
            raise UserError(f"{plan.path}: {name} of the add-on is no 1×1 convolution, or not in {STATE}")
        entries.setdefault("bias", torch.zeros(len(entries["weight"])))
        shaping |= {f"{ours}.{kind}": value for kind, value in entries.items()}
    return shaping


def _log(plan: _Plan) -> dict[str, Any]:
    settings = plan.similarity.get("params") or {}
    return {"similarity": "log", "epsilon": float(settings.get("stability_factor", 1e-4))}


def _owners(state: State, last_layer: torch.Tensor) -> list[int]:
    """By its own table; prototypes that were switched off there by the last layer."""
    table = state.get("classifier.proto_class_map")
    if table is None:
        return owners_of(last_layer)
    told, strongest = table.argmax(dim=1), last_layer.argmax(dim=0)
    return torch.where(table.amax(dim=1) > 0, told, strongest).tolist()


def _check_layer(path: Path, arch: str, layer: object) -> None:
    family = next((word for word in _LAYERS if arch.startswith(word)), None)
    if family is None or layer != _LAYERS[family]:
        known = ", ".join(f"{layer} of a {word}" for word, layer in _LAYERS.items())
        raise UserError(f"{path}: features are those of {layer} of {arch or 'nothing'}; known: {known}")


def _part(path: Path, content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise UserError(f"{path} has no part '{name}'; give a folder that CaBRNet saved")
    return found


def _yaml(path: Path) -> Mapping[str, Any]:
    import yaml  # huggingface_hub needs it, so that it is there

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is no description of a network")
    return content
