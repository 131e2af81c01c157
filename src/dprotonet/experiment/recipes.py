"""One table of recipes, and the one function that makes every setting of a run final.

A setting that nobody gave is implied by, the later the stronger: its default (config.py), the network
(`--network`), the mode (`--mode`), the recipe (`--recipe`). `resolve` reads this table for the command line,
for TOML files and for `dp.train` alike, and says where each value came from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from dprotonet.config import Config, from_tables, given_tables, to_tables
from dprotonet.errors import UserError
from dprotonet.experiment.paper_values import PAPER

Tables = Mapping[str, Mapping[str, Any]]

GIVEN, DEFAULT = "given", "default"

_PROTOPNET: Tables = {  # Chen et al., 2019, by their code
    "network": {
        "activation": "sigmoid",  # add-on layers end with it
        "regions": "points",  # Z_P of appendix B
        "similarity": "log",
        "epsilon": 1e-4,
        "head_own": 1.0,
        "head_other": -0.5,
    },
    "training": {
        "prototype_start": "uniform",
        "shaping_start": "random",
        "push_images": 1,  # the single nearest patch
        "head_learns": "last",  # warm and joint optimisers leave the last layer out
        "rate_schedule": "step",
        "decay_backbone": 1e-3,
        "decay_shaping": 1e-3,
    },
}


def _joined(*several: Tables) -> dict[str, dict[str, Any]]:
    names = dict.fromkeys(name for tables in several for name in tables)
    return {name: {k: v for tables in several for k, v in tables.get(name, {}).items()} for name in names}


NETWORKS: Mapping[str, Tables] = {
    "dprotonet": {},
    "protopnet": _PROTOPNET,
    # Singh and Yow, 2021: the last layer fixed throughout. -1 to other classes is unverified: --head-other.
    "np-protopnet": _joined(
        _PROTOPNET,
        {"network": {"head_other": -1.0}, "training": {"head_learns": "never", "last_layer_epochs": 0}},
    ),
    # Singh and Yow, 2021: prototypes of h×w×D, Z_G of appendix B. The size is unverified: --patch H W.
    "gen-protopnet": _joined(_PROTOPNET, {"network": {"regions": "patches", "patch": [2, 2]}}),
    # Kim et al., 2021, code unpublished. Its weights 0.5 are of the cosine; ours, of 2 - 2 cos, are half.
    # Re-implementations disagree about the head, 1 and -0.5 or 1 and 0: --head-other.
    "xprotonet": {
        "network": {"regions": "occurrence", "similarity": "cosine"},  # Z_X of appendix B
        "training": {
            "shaping_start": "random",
            "push_images": 1,
            "head_learns": "last",
            "cluster": 0.25,
            "separation": -0.25,
            "occurrence": 0.5,
        },
    },
    # Rymarczyk et al., 2022, by their code: ProtoPNet with prototypes that classes share.
    "protopool": _joined(_PROTOPNET, {"network": {"ownership": "pool", "head_other": 0.0}}),
    # Nauta et al., 2023, by their code; its weights 2, 5 and 2 of the losses are here 1, 2.5 and 1.
    "pip-net": {
        "network": {
            "ownership": "channels",
            "activation": "softmax",
            "regions": "points",
            "similarity": "cosine",
        },
        "training": {
            "pretrain_epochs": 10,
            "warm_epochs": 3,  # of the head alone
            "optimizer": "adamw",
            "rate_backbone": 5e-4,
            "rate_shaping": 5e-3,  # ten times the backbone's
            "rate_head": 5e-2,
            "decay_backbone": 0.0,
            "decay_shaping": 0.0,
            "push_images": 1,  # nothing is mixed: where a prototype is most present
            "shaping_start": "random",
            "last_layer_epochs": 0,
            "alignment": 2.5,
            "uniformity": 1.0,
        },
    },
    # The backbone with a linear layer, in the same epochs; its rate is the best of 3e-3, 1e-2 and 3e-2 on the
    # validation images of the built-in birds, frozen.
    "blackbox": {"training": {"rate_head": 3e-2}},
}
"""What the word of `--network` implies."""

FROZEN: Tables = {
    "training": {
        "epochs": 5,
        "warm_epochs": 0,  # the backbone is frozen throughout
        "push_every": 5,
        "shaping_start": "discriminant",
        "rate_shaping": 3e-4,
        "rate_prototypes": 3e-4,
    }
}
"""What `--mode frozen` implies for DProtoNet with masks. The paper has no such mode: it trains its backbone.
Here the shaping net begins where the classes are apart, and few epochs at a tenth of the paper's rates
suffice; chosen by cross-validation inside training images (docs/results.md)."""

JOINT: Tables = {
    "training": {
        "epochs": 10,
        "warm_epochs": 0,  # nothing is random that would have to settle first
        "push_every": 5,
        "shaping_start": "discriminant",
        "rate_shaping": 3e-4,
        "rate_prototypes": 3e-4,
    }
}
"""What `--mode joint` implies for DProtoNet with masks, other than by the recipe of the paper: a random
shaping net would drag the backbone along before it knows anything (docs/training.md)."""

JOINT_BLACKBOX: Tables = {
    "training": {
        "epochs": 10,
        "warm_epochs": 0,
        "push_every": 5,  # judged as often as the others are pushed
        "shaping_start": "discriminant",  # here of the head
        "rate_head": 3e-4,
        "shaping_dropout": 0.5,  # it starts with nearly all training images right: without it nothing is left
        "label_smoothing": 0.05,
    }
}

STEADY: Tables = {"training": {"batchnorm": "frozen"}}
"""What joint mode implies for all networks, other than by the recipes of the paper and of the authors, who
name nothing: statistics that a few hundred steps move are neither ImageNet's nor the data's."""


@dataclass(frozen=True)
class Recipe:
    """What `--recipe` implies: for all networks, and for some of them more; `network` where it is of one."""

    summary: str
    tables: Tables = field(default_factory=dict)
    network: str = ""
    networks: Mapping[str, Tables] = field(default_factory=dict)


_AUTHORS: Tables = {  # of ProtoPNet, by their code
    "network": {"dimension": 128},
    "training": {"batch_size": 80, "views_per_epoch": 30},
    # They rotate, skew or shear, one of them per copy, and distort nothing: one of three on average. Corners
    # wander as far as theirs when an image is tilted, in the mean square.
    "augmentation": {
        "rotation_probability": 1 / 3,
        "shear_probability": 1 / 3,
        "perspective": 0.4,
        "perspective_probability": 1 / 3,
        "distortion_probability": 0.0,
    },
}
_POOL: Tables = _joined(_AUTHORS, {"network": {"pool": 202}})
_PRESENCE: Tables = {"training": {"epochs": 60, "batch_size": 64}}
_SILENT: Tables = {  # where the paper names no decay of rates or weights, there is none
    "training": {"rate_schedule": "constant", "decay_backbone": 0.0, "decay_shaping": 0.0}
}

PARTS: Tables = {  # docs/parts.md
    "network": {
        "levels": 2,  # a beak is smaller than a place of the last map
        "regions": "parts",
        "dimension": 256,
        "similarity": "cosine",
        "head_own": 2.0,  # cosines are small numbers beside the logits of a confident answer
        "head_other": 0.0,
    },
    "training": {
        "epochs": 20,
        "warm_epochs": 0,
        "push_every": 5,
        "push_sources": 40,  # of 10 images a push loses a point on photographs
        "push_images": 5,  # views of each of them, as many as frozen mode keeps
        "prototypes_learn": "never",  # what they are pushed to is all that they are
        "head_learns": "never",
        "last_layer_epochs": 0,
        "rate_shaping": 1e-4,  # faster it forgets the discriminant that it starts as
        "decay_shaping": 0.0,
        "shaping_dropout": 0.5,
        "batchnorm": "frozen",
        "shaping_start": "discriminant",
        "label_smoothing": 0.05,
        "cluster": 0.8,  # the paper's; without it photographs lose a point
        "separation": 0.0,
        "foreign": 0.0,
    },
}

JOINT_PARTS: Tables = {"training": {"epochs": 10}}
"""Parts whose backbone learns need half the epochs, each many times as long (docs/training.md)."""

RECIPES: Mapping[str, Recipe] = {
    "default": Recipe("what we found best: parts"),
    "masks": Recipe("smooth masks that look at the whole image", {}, "dprotonet"),
    "parts": Recipe("prototypes that are parts of the object, each row another place", PARTS, "dprotonet"),
    "paper": Recipe(
        "DProtoNet's paper to the letter; the rivals by their own values, with what the paper shares",
        # Unstated there: the number of epochs, and of the augmented copies that an epoch goes through. A push
        # mixes up to 40 of them (Table 4), so 40; nothing is said of stopping early.
        {"training": {"epochs": 30, "views_per_epoch": 40, "patience": 1000}, "augmentation": {"flip": 0.0}},
        # Of the black box's training nothing is said: it keeps the schedule and decay that suit its rate.
        networks={"dprotonet": PAPER.tables(), "xprotonet": _SILENT},
    ),
    "protopnet": Recipe(
        "ProtoPNet with its authors' width, batch, copies and augmentation", _AUTHORS, "protopnet"
    ),
    "np-protopnet": Recipe("NP-ProtoPNet, built on ProtoPNet's code", _AUTHORS, "np-protopnet"),
    "gen-protopnet": Recipe("Gen-ProtoPNet, built on ProtoPNet's code", _AUTHORS, "gen-protopnet"),
    "xprotonet": Recipe("XProtoNet by its paper; its code is unpublished", {}, "xprotonet"),
    "protopool": Recipe("ProtoPool with its authors' width, batch and pool", _POOL, "protopool"),
    "pip-net": Recipe("PIP-Net with its authors' epochs and batch", _PRESENCE, "pip-net"),
    "blackbox": Recipe("the backbone with a linear layer", {}, "blackbox"),
}


@dataclass(frozen=True)
class Resolved:
    """A config in which every value is final, and the origin of each, by `section.key`."""

    config: Config
    origins: Mapping[str, str]


def resolve(config: Config) -> Resolved:
    """All values final; what somebody gave stays, and a config that is final comes back as it is.

    In a final config, such as that of a loaded run, every value counts as given: `dataclasses.replace`
    changes what it names and nothing that would follow from it. To have the recipe imply the rest anew, start
    from what was asked for: Config(data=final.data, training=TrainingConfig(mode="frozen")).
    """
    recipe = _recipe(config.recipe)
    given = given_tables(config)
    network = _network(config.recipe, recipe, given)
    tables, origins = to_tables(config), {}
    layers = [*_layers(config.recipe, recipe, network, given), (GIVEN, given)]
    for origin, layer in layers:
        for section, values in layer.items():
            tables[section].update(values)
            origins.update({f"{section}.{key}": origin for key in values})
    tables["network"]["network"] = network
    _fit_parts(tables["network"], given["network"], origins)
    final = from_tables(Config, tables, where="")
    return Resolved(final, _complete(origins, tables, config.recipe))


def _fit_parts(network: dict[str, Any], given: Mapping[str, Any], origins: dict[str, str]) -> None:
    """One prototype of a class for each part, where only one of the two numbers is given.

    Parts without a prototype would be found and never looked at; prototypes of a class that share a part,
    each mixed from most images of the class, would be one and the same.
    """
    if network["regions"] != "parts" or {"parts", "prototypes_per_class"} <= given.keys():
        return
    whole = int(network["whole"] > 0)
    if "prototypes_per_class" in given:
        network["parts"] = max(1, network["prototypes_per_class"] - whole)
        origins["network.parts"] = "as many as a class has prototypes"
    else:
        network["prototypes_per_class"] = network["parts"] + whole
        origins["network.prototypes_per_class"] = "one for each part"


def final_config(config: Config) -> Config:
    """The config of `resolve`."""
    return resolve(config).config


def config_from(tables: dict[str, Any]) -> Config:
    """The final config of TOML tables."""
    return final_config(from_tables(Config, tables, where=""))


def _layers(name: str, recipe: Recipe, network: str, given: Tables) -> Iterator[tuple[str, Tables]]:
    """What is implied and by what, the weaker first."""
    yield f"network {network}", NETWORKS[network]
    mode = given["training"].get("mode", "joint")
    origin = f"{mode} mode"
    if mode == "joint" and name in (DEFAULT, "masks", "parts", "blackbox"):
        yield origin, STEADY
        if network == "blackbox":
            yield origin, JOINT_BLACKBOX
    if network == "dprotonet":
        if name == DEFAULT and _can_be_parts(given):
            yield origin, PARTS
        elif name != "paper" and _is_plain(given):
            yield origin, FROZEN if mode == "frozen" else JOINT
    if recipe.network:
        yield f"recipe {name}", {"network": {"network": recipe.network}}
    yield f"recipe {name}", recipe.tables
    yield f"recipe {name}", recipe.networks.get(network, {})
    if mode == "joint" and (name == "parts" or (name == DEFAULT and _can_be_parts(given))):
        yield origin, JOINT_PARTS if network == "dprotonet" else {}


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        close = get_close_matches(name, RECIPES, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise UserError(f"unknown recipe '{name}'; {hint}known: {', '.join(RECIPES)}")
    return RECIPES[name]


def _network(name: str, recipe: Recipe, given: Tables) -> str:
    word = given["network"].get("network", recipe.network or "dprotonet")
    if recipe.network and word != recipe.network:
        raise UserError(f"recipe {name} is of the network {recipe.network}, not {word}; name one of them")
    if word not in NETWORKS:
        raise UserError(f"unknown network '{word}'; known: {', '.join(NETWORKS)}")
    return str(word)


def _can_be_parts(given: Tables) -> bool:
    """Whether nothing is asked for that only other regions have."""
    network = given["network"]
    return (
        network.get("regions", "parts") == "parts"
        and network.get("similarity", "cosine") == "cosine"
        and network.get("ownership", "class") == "class"
        and not any(key.startswith("mask") or key in ("patch", "epsilon") for key in network)
        and _is_plain(given)
    )


def _is_plain(given: Tables) -> bool:
    """Whether a plain shaping net is asked for: frozen mode's values were chosen for such a one."""
    network = given["network"]
    return (
        network.get("regions") != "occurrence"
        and network.get("activation", "none") == "none"
        and network.get("dimension") != 1
    )


def _complete(origins: Mapping[str, str], tables: Tables, recipe: str) -> dict[str, str]:
    """An origin for every key; under the paper's recipe with its place in the paper, or that it has none."""
    found = {"recipe": DEFAULT if recipe == DEFAULT else GIVEN}
    for section, values in tables.items():
        for key in values if isinstance(values, Mapping) else ():
            name = f"{section}.{key}"
            origin = origins.get(name, DEFAULT)
            found[name] = _told(origin, name, values[key]) if recipe == "paper" else origin
    return found


def _told(origin: str, name: str, value: Any) -> str:
    """Under the paper's recipe: with the place in the paper of a value that is the paper's."""
    if name not in PAPER.stated:
        silent = {
            "recipe paper": "recipe paper, where the paper is silent",
            DEFAULT: "default: not in the paper",
        }
        return silent.get(origin, origin)
    stated = PAPER.stated[name]
    theirs = stated.value is None or stated.value == value
    return f"{origin}: {stated.place}" if theirs and origin in ("recipe paper", DEFAULT) else origin


def check_rival(config: Config) -> None:
    """A rival's name on a config that has DProtoNet's values throughout would be a wrong label."""
    word, given = config.network.network, to_tables(config)
    plain = [Config(), *(_dprotonet(recipe, config.training.mode) for recipe in (DEFAULT, "masks"))]
    if any(_is_as(given, NETWORKS[word], to_tables(ours)) for ours in plain):
        raise UserError(
            f"network is '{word}', but its values are DProtoNet's; use `dprotonet train --network {word}`, "
            f"or in Python Config(network=NetworkConfig(network='{word}'))"
        )


def _dprotonet(recipe: str, mode: str) -> Config:
    return config_from({"recipe": recipe, "training": {"mode": mode}})


def _is_as(given: Tables, theirs: Tables, ours: Tables) -> bool:
    """Whether all that tells a rival from DProtoNet is DProtoNet's; not where nothing does."""
    keys = [(name, key) for name, values in theirs.items() for key in values]
    telling = [(name, key) for name, key in keys if theirs[name][key] != ours[name][key]]
    return bool(telling) and all(given[name][key] == ours[name][key] for name, key in telling)
