"""A prototype network of another program becomes a run folder: the same logits, with our saliency.

What the file does not hold is not made up: the images that prototypes came from are unknown, and the records
say so. `predict` tells classes and points; where the network looks is shown by `saliency`, not by `explain`,
which sets the source of every prototype beside the image.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dprotonet.config import Config
from dprotonet.encoder.backbone import Backbone, BackboneSpec
from dprotonet.encoder.weights import State, load_state
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import UNKNOWN_DATA
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.prototypes.cleaning import check_new
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.run_folder import RunFolder, unknown_source
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.transfer.foreign.found import Found
from dprotonet.experiment.transfer.foreign.read import Kind, read_found
from dprotonet.files import write_text
from dprotonet.network import DProtoNet


@dataclass(frozen=True)
class ImportSettings:
    """What a file does not say. Without names the classes are numbered."""

    classes: Sequence[str] = ()
    backbone: str | None = None  # timm:NAME; found by itself for the usual ones
    image_size: int = 224
    data: str = UNKNOWN_DATA
    kind: Kind = "auto"
    unstrided: int | None = None  # stages of the backbone with stride 1; None: as PIP-Net's usual ones


def import_network(file: Path, out: Path, settings: ImportSettings | None = None) -> dict[str, Any]:
    """Write the run folder `out`; what was found, as imported.json says it too."""
    settings = settings or ImportSettings()
    with claimed(out):
        run = RunFolder(out)
        check_new(out)
        named = settings.backbone and BackboneSpec.parse(settings.backbone).name
        found = read_found(file, kind=settings.kind, architecture=named or None, unstrided=settings.unstrided)
        names = _names(settings.classes, found.classes)
        config = _config(found, settings)
        check_config(config)
        network, matched = _network(found, config, source=str(file))
        records = [unknown_source(number, names[owner]) for number, owner in enumerate(found.owners)]
        TrainedModel(network, config=config, classes=names, prototypes=records).save(out)
        run.write_environment()
        report = _report(found, file, config, matched)
        write_text(out / "imported.json", json.dumps(report, ensure_ascii=False, indent=1))
    return report


def _names(given: Sequence[str], count: int) -> list[str]:
    names = list(given) or [f"class {number}" for number in range(count)]
    if len(names) != count:
        raise UserError(f"{len(names)} class names for {count} classes of the file; give one for each")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"the class name '{twice[0]}' comes twice; each class needs a name of its own")
    return names


def _config(found: Found, settings: ImportSettings) -> Config:
    spec = BackboneSpec(str(found.architecture), "none")
    count = max(found.owners.count(label) for label in set(found.owners))
    network = {**found.settings, "backbone": str(spec), "prototypes_per_class": count}
    data = {"data": settings.data, "image_size": settings.image_size}
    return config_from({"network": network, "data": data})


def _network(found: Found, config: Config, *, source: str) -> tuple[DProtoNet, int]:
    """The network with every weight of the file, and how many entries of the trunk those were."""
    network = build_network(
        config.network,
        classes=found.classes,
        image_size=config.data.image_size,
        pretrained=False,
        owner=found.owners,
    )
    assert isinstance(network, DProtoNet)
    backbone = network.encoder.backbone
    assert isinstance(backbone, Backbone)
    _check_shaping(found, network.encoder.shaping.state_dict(), config, source)
    report = load_state(backbone.trunk, found.trunk, in_channels=3, source=source)
    if report.missing or report.wrong_shape:
        lacking = (*report.missing, *report.wrong_shape)[0]
        raise UserError(f"{source}: {report}, such as {lacking}; a network with random layers is no import")
    network.encoder.shaping.load_state_dict(found.shaping)
    with torch.no_grad():
        network.prototypes.vectors.copy_(found.prototypes)
        network.head.weight.copy_(found.last_layer)
    return network, len(report.matched)


def _check_shaping(found: Found, ours: State, config: Config, source: str) -> None:
    wrong = [name for name, value in ours.items() if value.shape != found.shaping[name].shape]
    if wrong:
        raise UserError(
            f"{source}: add_on_layers.{wrong[0]} is {tuple(found.shaping[wrong[0]].shape)}, "
            f"{config.network.backbone} needs {tuple(ours[wrong[0]].shape)}; name another --backbone"
        )


def _report(found: Found, file: Path, config: Config, matched: int) -> dict[str, Any]:
    return {
        "file": file.name,
        "kind": found.kind,
        "network": config.network.network,
        "backbone": config.network.backbone,
        "classes": found.classes,
        "prototypes": len(found.prototypes),
        "dimension": config.network.dimension,
        "patch": list(found.patch),
        "matched": {"trunk": matched, "add-on layers": len(found.shaping), "prototypes and last layer": 2},
        "sources": "unknown: a state dict does not hold the images that prototypes came from",
    }
