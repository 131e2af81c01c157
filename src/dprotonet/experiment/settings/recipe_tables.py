"""What networks, modes and recipes imply, as tables; `recipes.resolve` makes a config of them.

A table names settings by section and key; `recipes._layers` says who wins where several speak of one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dprotonet.experiment.settings.paper_values import PAPER

Tables = Mapping[str, Mapping[str, Any]]

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
suffice; chosen by cross-validation inside training images (docs/masks.md)."""

_FROZEN_PROTOPNET: Tables = {  # its authors' width; of their rates nothing is left after a hundred steps
    "network": {"dimension": 128},
    "training": {
        "prototype_start": "regions",
        "rate_schedule": "cosine",
        "rate_shaping": 1e-2,
        "rate_prototypes": 1e-2,
        "decay_shaping": 3e-2,
        "epochs": 40,
        "push_every": 10,
    },
}
_FROZEN_PROTOPNET_DISCRIMINANT: Tables = {
    "network": {"dimension": 128},
    "training": {
        "prototype_start": "regions",
        "rate_schedule": "cosine",
        "decay_shaping": 3e-2,
        "epochs": 15,
        "push_every": 5,
    },
}
_FROZEN_PROTOPNETS: Mapping[str, Tables] = {
    "random": _FROZEN_PROTOPNET,
    "discriminant": _FROZEN_PROTOPNET_DISCRIMINANT,
}

FROZEN_RIVALS: Mapping[str, Mapping[str, Tables]] = {
    "protopnet": _FROZEN_PROTOPNETS,
    "np-protopnet": _FROZEN_PROTOPNETS,
    "gen-protopnet": _FROZEN_PROTOPNETS,
    "protopool": {
        "random": {
            "network": {"dimension": 128},
            "training": {
                "prototype_start": "regions",
                "rate_schedule": "constant",
                "rate_shaping": 1e-2,
                "rate_prototypes": 1e-2,
                "epochs": 60,
                "push_every": 20,
            },
        },
        "discriminant": {
            "network": {"dimension": 128},
            "training": {
                "prototype_start": "regions",
                "rate_schedule": "constant",
                "epochs": 30,
                "push_every": 10,
            },
        },
    },
}
"""What `--mode frozen` implies for rivals, by `--shaping-start`, where no recipe is named: their authors'
values suit a backbone that learns from thirty times the views. ProtoPNet's were chosen on held-out training
images of CUB, ProtoPool's on validation images of the built-in birds (docs/rivals.md)."""

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
        "part_foreground": "energy",  # clusters away from the border hold much that is no object
        "part_area": 0.35,  # else training leaves nothing to the background
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
