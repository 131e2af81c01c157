"""Which timm model a trunk is, by names and shapes; torchvision's ConvNeXt under timm's names."""

import re

import torch

from dprotonet.compat import import_guarded
from dprotonet.encoder.weights import State, is_head
from dprotonet.errors import UserError

_ARCHITECTURES = {  # by an entry that only this family has
    "conv1.weight": ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    "features.0.weight": tuple(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
    "features.conv0.weight": ("densenet121", "densenet161", "densenet169", "densenet201"),
    "stem.0.weight": ("convnext_tiny", "convnext_small", "convnext_base", "convnext_large"),
}
_CONVNEXT = (  # torchvision's names, and timm's
    (r"features\.0\.([01])\.", r"stem.\1."),
    (r"features\.([246])\.([01])\.", lambda found: f"stages.{int(found[1]) // 2}.downsample.{found[2]}."),
    (
        r"features\.([1357])\.(\d+)\.",
        lambda found: f"stages.{(int(found[1]) - 1) // 2}.blocks.{found[2]}.",
    ),
    (r"\.block\.0\.", ".conv_dw."),
    (r"\.block\.2\.", ".norm."),
    (r"\.block\.3\.", ".mlp.fc1."),
    (r"\.block\.5\.", ".mlp.fc2."),
    (r"\.layer_scale$", ".gamma"),
)


def architecture_of(trunk: State) -> str:
    """timm's name of the trunk."""
    family = next((names for entry, names in _ARCHITECTURES.items() if entry in trunk), ())
    for name in family:
        if _fits(name, trunk):
            return name
    some = ", ".join(list(trunk)[:3])
    raise UserError(
        f"the trunk is no ResNet, VGG, DenseNet or ConvNeXt that is known here (it has {some}, …); "
        "name its timm model with --backbone timm:NAME"
    )


def as_timm(trunk: State) -> State:
    """Entries of torchvision's ConvNeXt under timm's names; those of other trunks are the same in both."""
    if "features.1.0.layer_scale" not in trunk:
        return trunk
    renamed = {}
    for name, value in trunk.items():
        for theirs, ours in _CONVNEXT:
            name = re.sub(theirs, ours, name, count=1)
        renamed[name] = value.flatten() if name.endswith(".gamma") else value
    return renamed


def _fits(name: str, trunk: State) -> bool:
    """Whether a timm model has exactly these entries, apart from its classifier's."""
    with torch.device("meta"):
        model = import_guarded("timm").create_model(name, num_classes=0)
    own = {
        entry: value.shape
        for entry, value in model.state_dict().items()
        if not entry.startswith("pre_logits.") and not is_head(entry) and not _counts(entry)
    }
    return own == {entry: value.shape for entry, value in trunk.items() if not _counts(entry)}


def _counts(entry: str) -> bool:
    return entry.endswith("num_batches_tracked")
