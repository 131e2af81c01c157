"""Settings that somebody gave and that nothing in the run would look at: better refused than ignored."""

from collections.abc import Collection, Iterator, Sequence

from dprotonet.config import Config, TrainingConfig
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import has_several_labels

_MASKS = ("mask_style", "masks", "mask_grid", "mask_contrast", "mask_seed", "mask_file")
_PROTOTYPES = (
    "regions",
    "ownership",
    "prototypes_per_class",
    "similarity",
    "epsilon",
    "head_own",
    "head_other",
)
_OF_PROTOTYPES = (  # of training
    *("cluster", "separation", "foreign", "alignment", "uniformity"),
    *("pretrain_epochs", "slot_epochs", "last_layer_epochs"),
    *("part_dropout", "part_area", "part_foreground", "rate_parts"),
    *("prototypes_learn", "rate_prototypes", "prototype_start", "push_images", "push_sources"),
)


def check_idle(configs: Sequence[Config], given: Collection[str]) -> None:
    """Refuse the first of the settings `given`, by `section.key`, that has no effect in these final configs.

    There are several where the mode is still to be chosen; what one of them looks at is not idle.
    """
    first, *others = (dict(_idle(config)) for config in configs)
    for name, reason in first.items():
        if name in given and all(name in idle for idle in others):
            flag = name.partition(".")[2].replace("_", "-")
            raise UserError(f"--{flag} has no effect {reason}")


def _idle(config: Config) -> Iterator[tuple[str, str]]:
    """Settings that the others silence, by `section.key`, and why."""
    if has_several_labels(config.data.data):
        here = "with several labels per image, whose head is solved for (docs/labels.md); leave it out"
        yield from ((key, here) for key in ("network.head_own", "network.head_other", "training.foreign"))
    for key, reason in _idle_in_network(config):
        yield f"network.{key}", reason
    for key, reason in _idle_in_training(config):
        yield f"training.{key}", reason


def _idle_in_network(config: Config) -> Iterator[tuple[str, str]]:
    network = config.network
    blackbox = network.network == "blackbox"
    regions = "" if blackbox else network.regions
    here = "with --network blackbox" if blackbox else f"with --regions {regions}"
    remedy = " (--recipe masks)" if regions == "parts" else ""
    if regions != "masks":
        yield from ((key, f"{here}; it needs --regions masks{remedy}, or leave it out") for key in _MASKS)
    elif network.mask_style != "spatial":
        style = f"with --mask-style {network.mask_style}; it needs --mask-style spatial, or leave it out"
        yield from ((key, style) for key in ("mask_grid", "mask_contrast"))
    yield from _idle_by_parts(regions, here)
    if regions != "patches":
        yield "patch", f"{here}; it needs --regions patches, or leave it out"
    yield from _idle_by_owner("" if blackbox else network.ownership, here)
    if blackbox:
        for key in _PROTOTYPES:
            yield key, f"{here}, which has no prototypes; leave it out"
    elif network.similarity != "log":
        yield "epsilon", f"with --similarity {network.similarity}; it needs --similarity log, or leave it out"
    if network.levels == 1:
        for key in ("level_channels", "level_power"):
            yield key, "with --levels 1; it needs --levels 2 or more, or leave it out"
    else:
        yield "feature_channels", "with --levels 2 or more; give --level-channels instead"


def _idle_by_parts(regions: str, here: str) -> Iterator[tuple[str, str]]:
    """Of the network, by whether its regions are parts."""
    if regions == "parts":
        yield "activation", f"{here}, whose shaping nets are linear; leave it out"
        return
    for key in ("parts", "whole"):
        yield key, f"{here}; it needs --regions parts (--recipe parts), or leave it out"


def _idle_by_owner(ownership: str, here: str) -> Iterator[tuple[str, str]]:
    """Of the network, by whose prototypes are; nobody's where there are none."""
    here = f"with --ownership {ownership}" if ownership else here
    if ownership != "pool":
        yield "pool", f"{here}; it needs --ownership pool (--network protopool), or leave it out"
    if ownership == "channels":
        for key in ("prototypes_per_class", "head_own", "head_other"):
            yield key, f"{here}, whose prototypes are no class's own; leave it out"


def _idle_in_training(config: Config) -> Iterator[tuple[str, str]]:
    network, training = config.network, config.training
    yield from _idle_by_mode(training)
    if network.network == "blackbox":
        for key in _OF_PROTOTYPES:
            yield key, "with --network blackbox, which has no prototypes; leave it out"
        return
    yield from _idle_learning(network.ownership)
    if network.regions != "parts":
        for key in ("rate_parts", "part_dropout", "part_area", "part_foreground"):
            yield key, f"with --regions {network.regions}; it needs --regions parts, or leave it out"
    if training.prototypes_learn == "never":
        yield (
            "rate_prototypes",
            "with --prototypes-learn never; it needs --prototypes-learn always, or leave it out",
        )
    if training.head_learns == "never":
        for key in ("rate_head", "last_layer_epochs"):
            yield key, "with --head-learns never; it needs --head-learns always, or leave it out"


def _idle_by_mode(training: TrainingConfig) -> Iterator[tuple[str, str]]:
    """Of a backbone that does not learn, or that learns whole and so has no features that could be kept."""
    if training.mode == "joint" and not training.frozen_stages:
        yield (
            "augmentations",
            "with --mode joint, whose views are drawn anew in every epoch; it needs --mode frozen or "
            "--frozen-stages, or leave it out",
        )
    if training.mode == "frozen":
        for key in (
            "checkpoint_activations",
            "memory_format",
            "frozen_stages",
            "batchnorm",
            "rate_backbone",
            "decay_backbone",
        ):
            yield key, "with --mode frozen, whose backbone does not learn; leave it out"


def _idle_learning(ownership: str) -> Iterator[tuple[str, str]]:
    here = f"with --ownership {ownership}"
    if ownership != "pool":
        yield "slot_epochs", f"{here}; it needs --ownership pool (--network protopool), or leave it out"
    if ownership != "channels":
        for key in ("pretrain_epochs", "alignment", "uniformity"):
            yield key, f"{here}; it needs --ownership channels (--network pip-net), or leave it out"
        return
    for key in ("cluster", "separation", "foreign"):
        yield key, f"{here}, whose prototypes are no class's own; leave it out"
    for key in ("prototype_start", "prototypes_learn", "rate_prototypes", "push_images", "push_sources"):
        yield key, f"{here}: prototypes are channels and stay so; leave it out"
    for key in ("head_learns", "last_layer_epochs", "shaping_dropout"):
        yield key, f"{here}, which has no such stage or layer; leave it out"
