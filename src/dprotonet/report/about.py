"""What the model is, in words: from the run's config and its record of the environment."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprotonet.config import Config, by_name
from dprotonet.encoder.backbone import BackboneSpec
from dprotonet.experiment.explaining.explain import decoder_said
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.cleaning import FILE as CLEANED
from dprotonet.experiment.settings.epochs import Epochs
from dprotonet.files import read_json
from dprotonet.interpretation.mdm import Preset
from dprotonet.report.content import About, Fact

NETWORKS = {
    "dprotonet": "DProtoNet",
    "protopnet": "ProtoPNet",
    "np-protopnet": "NP-ProtoPNet",
    "gen-protopnet": "Gen-ProtoPNet",
    "xprotonet": "XProtoNet",
    "protopool": "ProtoPool",
    "pip-net": "PIP-Net",
    "blackbox": "black box",
}
_WEIGHTS = {
    "none": "trained from nothing",
    "imagenet": "first trained on ImageNet",
    "packaged": "first trained on ImageNet, packaged with the software",
}
_MODES = {
    "frozen": "only the layers above the backbone learned (frozen backbone)",
    "joint": "backbone and the layers above learned together",
}


def about(model: Model, *, folder: Path, preset: str | Preset = "fast") -> About:
    """The model of a run folder, whose heatmaps the decoder `preset` makes."""
    environment = _environment(folder)
    return About(
        title=folder.resolve().name,
        lead=_lead(model),
        facts=(*_facts(model), *_decoder(model, preset), *_left_out(folder)),
        settings=_settings(model.config),
        versions=_versions(environment),
        command=_command(environment),
    )


def described_data(data: str) -> str:
    """A data set as people say it."""
    kind, _, path = data.partition(":")
    if kind == "birds":
        return "built-in birds (drawings made by the software)"
    return f"{kind}, {path}" if path else kind


def _network(model: Model) -> str:
    """As people call it; a network that nobody has named here by its own word."""
    word = model.config.network.network
    return NETWORKS.get(word, word)


def _lead(model: Model) -> str:
    kind, classes = _network(model), len(model.classes)
    if not model.prototypes:
        return (
            f"This model is a {kind}: it tells {classes} classes of images apart, "
            "and gives no reasons of its own."
        )
    return (
        f"This model is a {kind}. It tells {classes} classes of images apart by comparing an image with "
        f"{len(model.prototypes)} prototypes: regions of training images that it remembers as typical."
    )


def _facts(model: Model) -> tuple[Fact, ...]:
    config = model.config
    spec = BackboneSpec.parse(config.network.backbone)
    channels = "colour" if config.network.channels == 3 else "grey"
    said = {
        "Network": _network(model),
        "Backbone": f"{spec.name}, {_weights(spec.weights)}",
        "Training": _training(model),
        "Trained on": described_data(config.data.data),
        "Images": f"{channels}, fitted to {config.data.image_size} × {config.data.image_size} pixels",
        "Classes": str(len(model.classes)),
        "Prototypes": _prototypes(model),
        "Random seed": _seed(model),
        "Parameters": f"{sum(item.numel() for item in model.network.parameters()):,}",
    }
    return tuple(Fact(name, value) for name, value in said.items())


def _imported(model: Model) -> bool:
    """Trained elsewhere: settings of training in its config are defaults and say nothing."""
    return bool(model.prototypes) and not model.has_sources


def _training(model: Model) -> str:
    training = model.config.training
    if _imported(model):
        return "elsewhere; the run was imported"
    epochs = Epochs.of(model.config)
    rounded = f" ({epochs.asked} asked for; {epochs.why})" if epochs.taken != epochs.asked else ""
    return f"{_MODES[training.mode]}, at most {epochs.taken} epochs{rounded}"


def _seed(model: Model) -> str:
    config = model.config
    if _imported(model):
        return "unknown"
    return f"{config.training.seed} (training), {config.data.data_seed} (data)"


def _decoder(model: Model, preset: str | Preset) -> tuple[Fact, ...]:
    return (Fact("Heatmaps", f"by the decoder {decoder_said(model, preset)}"),) if model.has_sources else ()


def _left_out(folder: Path) -> tuple[Fact, ...]:
    """What cleaned.json says was dropped; nothing where it is missing or damaged."""
    try:
        said = read_json(folder / CLEANED)
        dropped, before = len(said["dropped"]), int(said["prototypes_before"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return (Fact("Left out", f"{dropped} of {before} prototypes, after training; {CLEANED} says why"),)


def _weights(weights: str) -> str:
    return _WEIGHTS.get(weights, f"weights of {Path(weights).name}")


def _prototypes(model: Model) -> str:
    if not model.prototypes:
        return "none (a black box)"
    if model.config.network.ownership != "class":
        told = "shared by all classes; each is listed with the class it speaks for most"
        return f"{len(model.prototypes)}, {told}"
    counts = {name: 0 for name in model.classes}
    for record in model.prototypes:
        counts[record.class_name] += 1
    least, most = min(counts.values()), max(counts.values())
    each = f"{least} for every class" if least == most else f"{least} to {most} for each class"
    return f"{len(model.prototypes)}: {each}"


def _settings(config: Config) -> tuple[Fact, ...]:
    pairs = by_name(config).items()
    return tuple(Fact(name, json.dumps(value, ensure_ascii=False)) for name, value in pairs)


def _environment(folder: Path) -> Mapping[str, Any]:
    """environment.json; nothing where it is missing or damaged, since nothing depends on it."""
    try:
        found = read_json(folder / "environment.json")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _command(environment: Mapping[str, Any]) -> str:
    """As a user would type it: `python -m dprotonet` leaves another first word."""
    words = environment.get("command")
    if not isinstance(words, list) or not words:
        return ""
    first = "dprotonet" if words[0] == "__main__.py" else str(words[0])
    return shlex.join([first, *map(str, words[1:])])


def _versions(environment: Mapping[str, Any]) -> tuple[Fact, ...]:
    packages = environment.get("packages")
    said = {
        "python": environment.get("python"),
        **(packages if isinstance(packages, dict) else {}),
        "platform": environment.get("platform"),
    }
    return tuple(Fact(name, str(value)) for name, value in said.items() if value)
