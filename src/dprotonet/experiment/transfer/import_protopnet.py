"""An original ProtoPNet becomes a run folder: the same logits, with our predict, evaluate and saliency.

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
from dprotonet.encoder.weights import load_state
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import UNKNOWN_DATA
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.prototypes.cleaning import check_new
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.run_folder import RunFolder, unknown_source
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.transfer.protopnet_file import ProtoPNetFile
from dprotonet.files import write_text
from dprotonet.network import DProtoNet


@dataclass(frozen=True)
class ImportSettings:
    """What a file does not say. Without names the classes are numbered."""

    classes: Sequence[str] = ()
    backbone: str | None = None  # timm:NAME; found by itself for the usual ones
    image_size: int = 224
    data: str = UNKNOWN_DATA


def import_protopnet(file: Path, out: Path, settings: ImportSettings | None = None) -> dict[str, Any]:
    """Write the run folder `out`; what was found, as imported.json says it too."""
    settings = settings or ImportSettings()
    with claimed(out):
        run = RunFolder(out)
        check_new(out)
        found = ProtoPNetFile.read(file)
        names = _names(settings.classes, found.classes)
        owners = found.owners()
        config = _config(found, owners, settings)
        check_config(config)
        network, matched = _network(found, owners, config, source=str(file))
        records = [unknown_source(number, names[owner]) for number, owner in enumerate(owners)]
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


def _config(found: ProtoPNetFile, owners: Sequence[int], settings: ImportSettings) -> Config:
    backbone = settings.backbone or f"timm:{found.architecture()}"
    spec = BackboneSpec(BackboneSpec.parse(backbone).name, "none")
    network: dict[str, Any] = {
        "backbone": str(spec),
        "dimension": found.dimension,
        "prototypes_per_class": max(owners.count(label) for label in set(owners)),
    }
    word = "protopnet" if found.patch == (1, 1) else "gen-protopnet"
    if word == "gen-protopnet":
        network["patch"] = list(found.patch)
    data = {"data": settings.data, "image_size": settings.image_size}
    tables = {"network": {"network": word, **network}, "data": data}
    return config_from(tables)


def _network(
    found: ProtoPNetFile, owners: Sequence[int], config: Config, *, source: str
) -> tuple[DProtoNet, int]:
    """The network with every weight of the file, and how many entries of the trunk those were."""
    network = build_network(
        config.network,
        classes=found.classes,
        image_size=config.data.image_size,
        pretrained=False,
        owner=owners,
    )
    assert isinstance(network, DProtoNet)
    backbone = network.encoder.backbone
    assert isinstance(backbone, Backbone)
    shaping = network.encoder.shaping.state_dict()
    wrong = [name for name, value in shaping.items() if value.shape != found.shaping[name].shape]
    if wrong:
        raise UserError(
            f"{source}: add_on_layers.{wrong[0]} is {tuple(found.shaping[wrong[0]].shape)}, "
            f"{config.network.backbone} needs {tuple(shaping[wrong[0]].shape)}; name another --backbone"
        )
    report = load_state(backbone.trunk, found.trunk, in_channels=3, source=source)
    if report.missing or report.wrong_shape:
        lacking = (*report.missing, *report.wrong_shape)[0]
        raise UserError(f"{source}: {report}, such as {lacking}; a network with random layers is no import")
    network.encoder.shaping.load_state_dict(found.shaping)
    with torch.no_grad():
        network.prototypes.vectors.copy_(found.prototypes.flatten(1))
        network.head.weight.copy_(found.last_layer)
    return network, len(report.matched)


def _report(found: ProtoPNetFile, file: Path, config: Config, matched: int) -> dict[str, Any]:
    return {
        "file": file.name,
        "network": config.network.network,
        "backbone": config.network.backbone,
        "classes": found.classes,
        "prototypes": len(found.prototypes),
        "dimension": found.dimension,
        "patch": list(found.patch),
        "matched": {"trunk": matched, "add-on layers": len(found.shaping), "prototypes and last layer": 2},
        "sources": "unknown: a state dict does not hold the images that prototypes came from",
    }
