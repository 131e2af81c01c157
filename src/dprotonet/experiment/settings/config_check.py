"""Settings that no network could be built or trained from, each refused by name."""

import math
from collections.abc import Callable, Mapping

from dprotonet.config import Config, DataConfig, TrainingConfig
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import has_several_labels
from dprotonet.experiment.build.trackers import tracker_names
from dprotonet.experiment.build.training import build_augment
from dprotonet.experiment.settings.recipes import check_rival

_LEAST = {
    "species": 2,
    "image_size": 32,
    "levels": 1,
    "unstrided": 0,
    "level_channels": 1,
    "feature_channels": 0,
    "dimension": 1,
    "parts": 1,
    "masks": 1,
    "mask_grid": 1,
    "prototypes_per_class": 1,
    "epochs": 1,
    "views_per_epoch": 1,
    "warm_epochs": 0,
    "push_every": 1,
    "last_layer_epochs": 0,
    "patience": 1,
    "batch_size": 1,
    "accumulate": 1,
    "push_images": 1,
    "push_sources": 1,
    "augmentations": 0,
    "frozen_stages": 0,
    "workers": 0,
    "seed": 0,
    "data_seed": 0,
    "mask_seed": 0,
    "rate_backbone": 0,
    "decay_backbone": 0,
    "decay_shaping": 0,
    "occurrence": 0,
    "alignment": 0,
    "uniformity": 0,
    "pool": 2,
    "pretrain_epochs": 0,
    "slot_epochs": 1,
}


_ABOVE_0 = ("above 0", lambda value: value > 0)
_WHOLE = ("between 0 and 1", lambda value: 0 <= value <= 1)
_PART = ("above 0, at most 1", lambda value: 0 < value <= 1)
_SHARE = ("from 0 to below 1", lambda value: 0 <= value < 1)
_RANGES: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "rate_shaping": _ABOVE_0,
    "rate_prototypes": _ABOVE_0,
    "rate_head": _ABOVE_0,
    "rate_parts": _ABOVE_0,
    "epsilon": _ABOVE_0,
    "mask_contrast": _PART,
    "level_power": _PART,
    "label_smoothing": _SHARE,
    "shaping_dropout": _SHARE,
    "part_dropout": _SHARE,
    "part_area": _PART,
    "least_presence": _SHARE,
    "whole": ("0 or more", lambda value: value >= 0),
    "image_weight": _WHOLE,
    "heatmap_weight": _WHOLE,
}


def check_config(config: Config) -> None:
    """Numbers that no network could be built or trained from."""
    if config.training.mode == "auto":
        raise UserError("mode auto is decided by `dprotonet train` and dp.train; here give frozen or joint")
    sections = (config.data, config.network, config.training, config.augmentation, config.explaining)
    values = {name: value for section in sections for name, value in vars(section).items()}
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--{name.replace('_', '-')} is {value}; it must be a finite number")
    for name, least in _LEAST.items():
        if values[name] < least:
            raise UserError(f"--{name.replace('_', '-')} is {values[name]}; it must be at least {least}")
    for name, (words, allowed) in _RANGES.items():
        if not allowed(values[name]):
            raise UserError(f"--{name.replace('_', '-')} is {values[name]}; it must be {words}")
    _check_folds(config.data)
    build_augment(config.augmentation)
    check_rival(config)
    if config.training.occurrence and config.network.regions != "occurrence":
        raise UserError("--occurrence weighs learned maps; it needs --regions occurrence, or leave it at 0")
    _check_several_labels(config)
    _check_ownership(config)
    _check_projection(config)
    _check_balance(config.training)
    _check_shaping_start(config)
    tracker_names(config.training)
    if config.network.mask_style == "file" and not config.network.mask_file:
        raise UserError("--mask-style file needs --mask-file with an .npy array")


def _check_folds(config: DataConfig) -> None:
    if config.folds == 1 or config.folds < 0:
        raise UserError(f"--folds is {config.folds}; it must be at least 2, or 0 for no cross-validation")
    if not 0 <= config.fold <= config.folds:
        remedy = f"it must be 1 to {config.folds}" if config.folds else "it needs --folds, such as --folds 5"
        raise UserError(f"--fold is {config.fold}; {remedy}")


def _check_balance(config: TrainingConfig) -> None:
    if config.class_weights == config.sampling == "balanced":
        raise UserError(
            "--class-weights balanced and --sampling balanced together would favour rare classes; give one"
        )


def _check_several_labels(config: Config) -> None:
    """What is not there yet where images may have several labels (docs/labels.md)."""
    if not has_several_labels(config.data.data):
        return
    network = config.network
    obstacles = {
        f"--network {network.network}": network.network != "dprotonet",
        f"--ownership {network.ownership}": network.ownership != "class",
        f"--regions {network.regions}": network.regions == "occurrence",
        "--folds (nor --mode auto, which needs them)": config.data.folds > 0,
        "--sampling balanced (--class-weights balanced is)": config.training.sampling == "balanced",
    }
    for words in (words for words, present in obstacles.items() if present):
        raise UserError(f"{words} is not there for data with several labels per image; leave it out")


def _check_ownership(config: Config) -> None:
    """Prototypes that classes share need what their networks are made of."""
    network, training = config.network, config.training
    if network.network == "blackbox":
        return
    softmax, channels = network.activation == "softmax", network.ownership == "channels"
    if softmax != channels:
        raise UserError("--activation softmax and --ownership channels need each other (--network pip-net)")
    if channels and (network.regions, network.similarity) != ("points", "cosine"):
        raise UserError("--ownership channels needs --regions points and --similarity cosine")
    keeps = training.mode == "frozen" or training.frozen_stages > 0
    if channels and keeps and not training.augmentations:
        place = "frozen mode" if training.mode == "frozen" else "--frozen-stages"
        raise UserError(f"PIP-Net compares two views of an image; {place} needs --augmentations 1 or more")
    if network.ownership == "pool" and network.regions in ("occurrence", "parts"):
        raise UserError(f"--ownership pool cannot have --regions {network.regions}; use points or patches")
    if network.ownership == "pool" and network.pool <= network.prototypes_per_class:
        raise UserError(
            f"--pool is {network.pool}; it must be above --prototypes-per-class, "
            f"{network.prototypes_per_class}, the slots of a class"
        )


def _check_projection(config: Config) -> None:
    """A projection needs vectors of bounded length, and imported pairs of shaping nets need projections."""
    network = config.network
    if network.network == "blackbox":
        return
    bounded = network.activation in ("sigmoid", "tanh", "unit") and network.regions == "points"
    if network.similarity == "projection" and not bounded:
        raise UserError("--similarity projection needs --activation sigmoid and --regions points")
    if network.activation in ("tanh", "unit") and network.similarity != "projection":
        raise UserError(f"--activation {network.activation} is that of imported ST-ProtoPNets; use sigmoid")
    if network.least_presence and network.ownership != "channels":
        raise UserError("--least-presence is PIP-Net's; it needs --ownership channels, or leave it at 0")


def check_trainable(config: Config) -> None:
    """What can be loaded but not trained."""
    if config.network.network != "blackbox" and config.network.activation in ("tanh", "unit"):
        raise UserError(
            f"--activation {config.network.activation} is that of imported ST-ProtoPNets, which are not "
            "trained here; use sigmoid"
        )


def _check_shaping_start(config: Config) -> None:
    """A discriminant needs two channels at least for its pairs."""
    network = config.network
    if config.training.shaping_start == "random" or network.network == "blackbox":
        return
    obstacles = {
        "--activation softmax": network.activation == "softmax",
        "--dimension 1": network.dimension == 1,
        # Prototypes of parts begin as the classes' means with it.
        "--prototype-start uniform": network.regions == "parts"
        and config.training.prototype_start == "uniform",
    }
    for words in (words for words, present in obstacles.items() if present):
        raise UserError(
            f"the shaping net cannot start as a discriminant with {words}; add --shaping-start random"
        )
