"""The networks that DProtoNet is compared with, as values of the same config (appendix B, Section 2.2).

A rival is a word, `--network protopnet`, that gives other defaults to some settings; whatever a user sets by
himself wins. So does `--mode frozen`, for DProtoNet alone (`FROZEN`). What the sources leave open is a
setting like any other. The rest (dimension 512, augmentation, epochs, batch) stays DProtoNet's, as in the
paper's comparison; ProtoPNet's own code has `--dimension 128`.
"""

from typing import Any

from dprotonet.config import FROZEN, Config, from_tables, to_tables
from dprotonet.errors import UserError

Tables = dict[str, dict[str, Any]]

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


def _changed(base: Tables, *, network: dict[str, Any], training: dict[str, Any]) -> Tables:
    return {"network": {**base["network"], **network}, "training": {**base["training"], **training}}


PRESETS: dict[str, Tables] = {
    "dprotonet": {},
    "protopnet": _PROTOPNET,
    # Singh and Yow, 2021: the last layer fixed throughout. -1 to other classes is unverified: --head-other.
    "np-protopnet": _changed(
        _PROTOPNET, network={"head_other": -1.0}, training={"head_learns": "never", "last_layer_epochs": 0}
    ),
    # Singh and Yow, 2021: prototypes of h×w×D, Z_G of appendix B. The size is unverified: --patch H W.
    "gen-protopnet": _changed(_PROTOPNET, network={"regions": "patches", "patch": [2, 2]}, training={}),
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
    # The backbone with a linear layer, in the same epochs; its rate is the best of 3e-3, 1e-2 and 3e-2 on the
    # validation images of the built-in birds, frozen.
    "blackbox": {"training": {"rate_head": 3e-2}},
}


def rival_config(network: str | None = None, tables: Tables | None = None) -> Config:
    """The config of TOML tables, where what they leave out is the network's own, or frozen mode's.

    `network` is a word of PRESETS; None takes the tables' word.
    """
    given = dict(tables or {})
    section, training = _table(given, "network"), _table(given, "training")
    if network is not None and isinstance(given.get("network", {}), dict):
        given["network"] = section = {**section, "network": network}
    word = section.get("network", "dprotonet")
    preset = PRESETS.get(word, {}) if isinstance(word, str) else {}  # an unknown word is named by from_tables
    if word == "dprotonet" and training.get("mode") == "frozen" and _can_be_discriminant(section):
        preset = {"training": FROZEN}
    for name, values in preset.items():
        own = given.get(name, {})
        given[name] = {**values, **own} if isinstance(own, dict) else own
    return from_tables(Config, given, where="")


def _table(tables: Tables, name: str) -> dict[str, Any]:
    found = tables.get(name, {})
    return found if isinstance(found, dict) else {}  # what is no table is named by from_tables


def _can_be_discriminant(network: dict[str, Any]) -> bool:
    """Whether a plain shaping net is asked for; `check_config` says why others cannot start so."""
    return (
        network.get("regions") != "occurrence"
        and network.get("activation", "none") == "none"
        and network.get("dimension") != 1
    )


def check_rival(config: Config) -> None:
    """A rival's name on a config that still has DProtoNet's values throughout would be a wrong label."""
    word = config.network.network
    given, plain = to_tables(config), to_tables(Config())
    keys = [(name, key) for name, values in PRESETS[word].items() for key in values]
    telling = [(name, key) for name, key in keys if PRESETS[word][name][key] != plain[name][key]]
    if telling and all(given[name][key] == plain[name][key] for name, key in telling):
        raise UserError(
            f"network is '{word}', but its values are DProtoNet's; use `dprotonet train --network {word}`, "
            f"or in Python dprotonet.experiment.rivals.rival_config('{word}')"
        )
