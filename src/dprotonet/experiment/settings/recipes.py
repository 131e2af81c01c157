"""The one function that makes every setting of a run final, by the tables of recipe_tables.py.

A setting that nobody gave is implied by, the later the stronger: its default (config.py), the network
(`--network`), the mode (`--mode`), the recipe (`--recipe`). `resolve` does so for the command line,
for TOML files and for `dp.train` alike, and says where each value came from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from dprotonet.config import Config, from_tables, given_tables, to_tables
from dprotonet.errors import UserError
from dprotonet.experiment.settings.paper_values import PAPER
from dprotonet.experiment.settings.recipe_tables import (
    FROZEN,
    FROZEN_RIVALS,
    JOINT,
    JOINT_BLACKBOX,
    JOINT_PARTS,
    NETWORKS,
    PARTS,
    RECIPES,
    STEADY,
    Recipe,
    Tables,
)

GIVEN, DEFAULT = "given", "default"


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
    if mode == "frozen" and name == DEFAULT and network in FROZEN_RIVALS:
        yield origin, FROZEN_RIVALS[network].get(given["training"].get("shaping_start", "random"), {})
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


@cache
def _dprotonet(recipe: str, mode: str) -> Config:
    return config_from({"recipe": recipe, "training": {"mode": mode}})


def _is_as(given: Tables, theirs: Tables, ours: Tables) -> bool:
    """Whether all that tells a rival from DProtoNet is DProtoNet's; not where nothing does."""
    keys = [(name, key) for name, values in theirs.items() for key in values]
    telling = [(name, key) for name, key in keys if theirs[name][key] != ours[name][key]]
    return bool(telling) and all(given[name][key] == ours[name][key] for name, key in telling)
