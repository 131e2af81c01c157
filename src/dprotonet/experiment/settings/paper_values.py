"""The settings that the paper states, each with its place there, and why a default of ours departs from it.

`--recipe paper` is made of these values; docs/fidelity.md lists every default that differs, with the reason
given here, and a test fails where a difference has none.

Unstated: how many epochs follow the warm ones; 30 in all, in frozen mode 20 with parts and 5 with masks.
Unstated: how many augmented copies of an image an epoch goes through. `--recipe paper` takes 40, as many as
Table 4 mixes in a push, and the recipes of ProtoPNet 30, as its code makes; our default is 1, made anew in
each epoch, so that our epochs have 30 to 40 times fewer steps (`views_per_epoch`).
Unstated: the share of training images that is held out for validation, if any; 10 % (`val_fraction`).
Unstated: which x_i of a class a push takes. Ours is the image with the nearest region, as in ProtoPNet.
Deviation: class nodes. The paper watches prototype nodes only, as `explain` and `mdm-prototype` do;
`saliency` and `mdm` watch a class, so that they explain any network.
Deviation: frozen mode as such, which the paper does not have; its backbone learns in the joint stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Stated(NamedTuple):
    """A value of the paper, its place there, and why our default is another (empty where it is the same).

    The value is None where the paper has several, and a user must choose.
    """

    value: Any
    place: str
    departure: str = ""


@dataclass(frozen=True)
class PaperValues:
    """Stated values by `section.key`."""

    stated: Mapping[str, Stated]

    def tables(self) -> dict[str, dict[str, Any]]:
        """The values as tables of a config."""
        found: dict[str, dict[str, Any]] = {}
        for name, item in self.stated.items():
            section, _, key = name.partition(".")
            if item.value is not None:
                found.setdefault(section, {})[key] = item.value
        return found

    def place(self, name: str) -> str:
        """Where the paper says it, or that it does not."""
        return self.stated[name].place if name in self.stated else "not in the paper"


_RATES = "frozen mode starts at the discriminant, from which a tenth of the paper's rate or less goes further"
_FIXED = "with parts the head is fixed, so that a logit is the sum of what the own class's parts say"

PAPER = PaperValues(
    {
        "data.image_size": Stated(224, "Section 4.3, cropped to 224 × 224"),
        "network.network": Stated(None, "DProtoNet; its rivals in Section 4.1"),
        "network.backbone": Stated(None, "Section 4.1: ResNet50, VGG19 or DenseNet121, to be given"),
        "network.regions": Stated(
            "masks",
            "Section 3.2, Eq. (8)",
            "masks look at nearly the whole image, parts at one place each (docs/parts.md)",
        ),
        "network.mask_style": Stated(
            "uniform",
            "Section 3.2, randomly generated",
            "independent values average out: every region vector is nearly half the global average",
        ),
        "network.masks": Stated(720, "Section 4.3"),
        "network.dimension": Stated(
            512, "Section 4.3, D1 = 512", "as many as the joined map has, so that no direction is lost"
        ),
        "network.activation": Stated("none", "Section 4.3, ReLU between two 1 × 1 convolutions"),
        "network.prototypes_per_class": Stated(10, "Section 4.3"),
        "network.similarity": Stated(
            "log", "Eq. (2)", "a part that is hidden must say little; the cosine times its presence does"
        ),
        "network.epsilon": Stated(1e-12, "Section 4.3"),
        "training.mode": Stated(
            "joint", "Algorithm 2", "frozen mode is for machines without a GPU; joint is the default"
        ),
        "training.warm_epochs": Stated(
            5, "Section 4.3, the initial stage", "in frozen mode the backbone never learns: all is one stage"
        ),
        "training.push_every": Stated(
            10, "Section 4.3", "in frozen mode five epochs from the discriminant suffice"
        ),
        "training.batch_size": Stated(60, "Section 4.3"),
        "training.push_images": Stated(
            40, "Table 4, M = 40", "a part's prototype is mixed from 40 images of its class, five views each"
        ),
        "training.rate_backbone": Stated(1e-4, "Section 4.3"),
        "training.rate_shaping": Stated(3e-3, "Section 4.3", _RATES),
        "training.rate_prototypes": Stated(3e-3, "Section 4.3", _RATES),
        "training.rate_head": Stated(1e-4, "Section 4.3"),
        "training.optimizer": Stated("adam", "Section 4.3; Algorithm 2 says SGD"),
        "training.head_learns": Stated("always", "Algorithm 2, lines 4 and 6", _FIXED),
        "training.shaping_start": Stated(
            "random",
            "Section 4.3, only the backbone is pre-trained",
            "in frozen mode random weights need more epochs and do not get as far",
        ),
        "training.rate_schedule": Stated(
            "constant", "Section 4.3 names no decay", "half a cosine ends higher on validation images"
        ),
        "training.decay_backbone": Stated(
            0.0, "Section 4.3 names no weight decay", "as in ProtoPNet's code, which the paper builds on"
        ),
        "training.decay_shaping": Stated(
            0.0,
            "Section 4.3 names no weight decay",
            "the shaping net is new and wide; chosen on validation images",
        ),
        "training.cluster": Stated(0.8, "Section 4.3, λ1"),
        "training.separation": Stated(
            -0.08, "Section 4.3, λ2", "parts are told apart by the cross-entropy alone"
        ),
        "training.foreign": Stated(1e-4, "Section 4.3, λ3", _FIXED),
        "training.occurrence": Stated(0.0, "Eq. (4)"),
        "augmentation.flip": Stated(
            0.0,
            "Section 4.3, rotated, perspectived, sheared, and distorted",
            "ProtoPNet mirrors images too; birds and cars look the same from both sides",
        ),
        "explaining.decoder": Stated(
            "paper", "Algorithm 1", "the same masks learned together, in a hundredth of the passes"
        ),
        "explaining.image_weight": Stated(0.5, "Section 4.3, α"),
        "explaining.heatmap_weight": Stated(0.3, "Section 4.3, β", "α + β < 1 darkens the picture"),
    }
)

DECODER: Mapping[str, Stated] = {
    "sizes": Stated(tuple(range(6, 16)), "Section 4.3, a_i = b_i = 5 + i, D = 10"),
    "iterations": Stated(800, "Section 4.3"),
    "start": Stated(0.5, "Section 4.3, τ"),
    "sparsity": Stated(10.0, "Section 4.3, η_i"),
    "threshold": Stated(0.3, "Section 4.3, γ = 3 of ten masks"),
}
"""What the paper states of its decoder; values of the preset `paper` (interpretation/algorithm1.py)."""
