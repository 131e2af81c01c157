"""TOML ⇄ frozen dataclasses, strictly: an unknown key is an error that names the known ones.

The numbers with a meaning live here as defaults. A default is *implied*: it holds unless the recipe, the mode
or the network says otherwise (experiment/settings/recipes.py), while what a user gives always holds, even
where it equals the default. Field names are unique over all sections, because the command line offers them
without their section.
"""

import dataclasses
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from dprotonet.errors import UserError
from dprotonet.implied import IMPLIED, Implied, settings

T = TypeVar("T")


@settings
class DataConfig:
    """Images and splits."""

    data: str = "birds"
    """`birds` (built in), `folder:PATH` with train/CLASS/* and test/CLASS/*, `labels:PATH` with labels.csv
    (several per image, as `birds-findings`), or a public data set such as `cub:PATH` (docs/data.md)."""
    image_size: int = 224
    """Side of the square the network sees (Section 4.3)."""
    val_fraction: float = 0.1
    """Share of the training images held out for validation if the data has no validation split."""
    data_seed: int = 0
    """Seed of the validation split, of the built-in birds and of augmentation."""
    folds: int = 0
    """Number of cross-validation folds of the training and validation images (0: no cross-validation)."""
    fold: int = 0
    """Train this fold only, 1 to --folds (0: all of them, into --out/fold-1 …)."""
    allow_leaks: bool = False
    """Train even if the same image is in two splits."""
    image_cache: str = ""
    """Folder for a cache of resized images, so that each file is decoded only once; empty: no cache."""
    species: int = 12
    """Number of built-in bird species, 2 to 200."""
    train_per_species: int = 60
    """Training images per built-in species."""
    val_per_species: int = 15
    """Validation images per built-in species."""
    test_per_species: int = 40
    """Test images per built-in species."""


@settings
class NetworkConfig:
    """Encoder and inference (Sections 3.1, 3.2 and 4.3)."""

    network: Literal[
        "dprotonet",
        "protopnet",
        "np-protopnet",
        "gen-protopnet",
        "xprotonet",
        "protopool",
        "pip-net",
        "blackbox",
    ] = "dprotonet"
    """Architecture; any but dprotonet changes the defaults of the settings below (docs/rivals.md)."""
    backbone: str = "timm:tf_efficientnet_lite0:packaged"
    """`timm:NAME[:WEIGHTS]`, where WEIGHTS is none, imagenet, packaged or a local file."""
    levels: int = 1
    """Number of the backbone's last feature maps joined into one, at the finest resolution; 1: the last."""
    level_channels: int = 256
    """Channels of the joined feature map."""
    unstrided: int = 0
    """Number of the backbone's last stages with stride 1 instead of 2; PIP-Net has 2."""
    feature_channels: int = 0
    """With one level, principal components of the feature map to keep; 0: all channels (docs/scale.md)."""
    level_power: float = 1.0
    """Exponent of the coarser levels' activations before joining; 0.5 reduces the dominance of large ones."""
    channels: Literal[1, 3] = 3
    """Input channels: 3 for colour, 1 for grey."""
    dimension: int = 512
    """D₁, output channels of the shaping net (the two 1×1 convolutions after the backbone)."""
    activation: Literal["none", "sigmoid", "softmax", "tanh", "unit"] = "none"
    """Activation after the shaping net; ProtoPNet has a sigmoid, PIP-Net a softmax over channels, imported
    ST-ProtoPNets `tanh` or `unit`."""
    regions: Literal["masks", "points", "patches", "occurrence", "parts"] = "masks"
    """What prototypes are compared with: the whole feature map under random masks, single locations, patches
    of them, a learned occurrence map per prototype, or parts found in every image (docs/parts.md)."""
    parts: int = 10
    """Number of parts, for `--regions parts`: one per prototype of a class. If only one of --parts and
    --prototypes-per-class is given, the other follows; if both are, prototypes are assigned in turn."""
    whole: float = 0.0
    """Weight of an additional region for the whole image, relative to a part, for `--regions parts` (0: no
    such region). It uses one of --prototypes-per-class."""
    mask_style: Literal["spatial", "uniform", "file"] = "spatial"
    """`uniform` is the paper's; `spatial` is smooth, the same for all channels; `file` reads --mask-file."""
    masks: int = 720
    """Number of random feature masks."""
    mask_grid: int = 3
    """Side of the random grid from which a spatial mask is upsampled."""
    mask_contrast: float = 0.5
    """Contrast of spatial masks: 1 reaches nearly to 0; small values come close to global average pooling."""
    mask_seed: int = 0
    """Seed of the random masks."""
    mask_file: str = ""
    """An .npy file with masks (R, D or 1, h, w) in [0, 1], for `--mask-style file`."""
    patch: tuple[int, int] = (1, 1)
    """Height and width of a patch, for `--regions patches`."""
    prototypes_per_class: int = 10
    """Prototypes per class; with `--ownership pool` the slots per class for prototypes of the pool."""
    ownership: Literal["class", "pool", "channels"] = "class"
    """How prototypes belong to classes: each to one `class`; shared in a `pool` from which slots choose
    (ProtoPool); or the `channels` of the feature map, --dimension of them, without a class (PIP-Net)."""
    pool: int = 202
    """Number of prototypes for `--ownership pool`; 202 is ProtoPool's value for 200 species of birds."""
    similarity: Literal["log", "cosine", "projection"] = "log"
    """Similarity of a region and a prototype: log of the distance, Eq. (2), cosine, TesNet's projection."""
    least_presence: float = 0.0
    """Presences below it count as 0 in predictions, for `--ownership channels`; PIP-Net has 0.1."""
    epsilon: float = 1e-12
    """ε of Eq. (2)."""
    head_own: float = 1.0
    """Initial weight of the head between a class and its own prototypes."""
    head_other: float = -0.5
    """Initial weight of the head between a class and the prototypes of other classes."""


@settings
class TrainingConfig:
    """Training (Algorithm 2 and Section 4.3)."""

    mode: Literal["joint", "frozen", "auto"] = "joint"
    """`joint` fine-tunes the backbone too, as in the paper; `frozen` trains on its cached features, for
    laptops; `auto` compares both on three folds of the training images (docs/training.md)."""
    seed: int = 0
    """Seed of initialisation and training."""
    epochs: int = 30
    """Warm and joint epochs together, at least --warm-epochs; rounded up to end with a push."""
    views_per_epoch: int = 1
    """Augmented views of each training image per epoch. ProtoPNet stores 30 augmented copies of each image,
    the paper an unknown number, so their epochs are that many times longer."""
    warm_epochs: int = 5
    """Epochs at the start during which the backbone stays frozen."""
    push_every: int = 10
    """Epochs between pushes (projections of prototypes onto training images)."""
    pretrain_epochs: int = 0
    """Epochs of self-supervised pre-training, without labels, for `--ownership channels`."""
    slot_epochs: int = 10
    """Epochs within which slots settle on their prototypes, for `--ownership pool`."""
    last_layer_epochs: int = 20
    """Epochs after each push in which only the head (last layer) is trained."""
    patience: int = 2
    """Early stopping: number of pushes without a better validation accuracy."""
    batch_size: int = 60
    """Images per optimiser step, over all processes."""
    accumulate: int = 1
    """Compute each batch in this many pieces, for less memory and the same step (docs/training.md)."""
    checkpoint_activations: bool = False
    """Recompute the backbone's activations in the backward pass: less memory, a third more time."""
    memory_format: Literal["auto", "channels_first", "channels_last"] = "auto"
    """Memory layout of a trainable backbone; `auto` is `channels_last` on CPUs, where it is faster."""
    push_images: int = 40
    """M of multi-image prototype learning: views averaged per source image; 1 is the push of earlier work."""
    push_sources: int = 1
    """Number of source images averaged into a prototype, M views of each; the paper has one."""
    augmentations: int = 4
    """Cached augmented views per training image, in frozen mode or with --frozen-stages."""
    rate_backbone: float = 1e-4
    """Learning rate of the backbone."""
    rate_shaping: float = 3e-3
    """Learning rate of the shaping net."""
    rate_prototypes: float = 3e-3
    """Learning rate of the prototypes."""
    rate_head: float = 1e-4
    """Learning rate of the head."""
    rate_parts: float = 1e-2
    """Learning rate of the part maps, for `--regions parts`."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """`adam` adds the weight decay to the gradient, `adamw` decouples it."""
    label_smoothing: float = 0.0
    """Label smoothing of the cross-entropy."""
    class_weights: Literal["none", "balanced"] = "none"
    """`balanced`: weight the cross-entropy by inverse class frequency, so that all classes count equally."""
    sampling: Literal["natural", "balanced"] = "natural"
    """`balanced`: an epoch shows every class equally often, `natural` every image."""
    frozen_stages: int = 0
    """Number of the backbone's first stages that stay frozen in joint mode (EfficientNet-Lite0: 3 of 5, up
    to stride 8). Their output for each view is cached, as in frozen mode, so that a step takes a fraction of
    the time; --augmentations is the number of views."""
    batchnorm: Literal["learns", "frozen"] = "learns"
    """BatchNorm statistics of the backbone in joint mode: of the batches, or frozen as pre-trained."""
    shaping_dropout: float = 0.0
    """Dropout rate of channels in each layer of the shaping net; for a black box, of the pooled features."""
    part_dropout: float = 0.0
    """Dropout rate of the parts of an image in training, for `--regions parts`."""
    part_area: float = 1.0
    """Share of the image that all parts may cover without a penalty, for `--regions parts` (1: none)."""
    part_foreground: Literal["border", "energy"] = "border"
    """Initial parts, for `--regions parts`: clusters away from the image `border`, or clusters of locations
    with class-discriminative features (`energy`)."""
    prototypes_learn: Literal["always", "never"] = "always"
    """`never`: prototypes are always region vectors of training images, set by a push before the first epoch
    and by later pushes; only the other parameters are trained."""
    head_learns: Literal["always", "last", "never"] = "always"
    """When the head is trained: in all stages (Algorithm 2), only in the last-layer stage, or never."""
    prototype_start: Literal["regions", "uniform"] = "regions"
    """Initial prototypes: region vectors of training images, or random, from U(0, 1)."""
    shaping_start: Literal["random", "discriminant"] = "random"
    """Initial weights of the shaping net (for a black box, of its head): random, or the linear discriminant
    (LDA) of the training classes."""
    rate_schedule: Literal["cosine", "constant", "step"] = "cosine"
    """Learning-rate schedule; the paper names no decay. `step` is ProtoPNet's."""
    decay_backbone: float = 1e-3
    """Weight decay of the backbone; the paper names none, ProtoPNet has this one."""
    decay_shaping: float = 3e-2
    """Weight decay of the shaping net, chosen on validation data."""
    cluster: float = 0.8
    """λ₁ of Eq. (4), the weight of the cluster loss."""
    separation: float = -0.08
    """λ₂ of Eq. (4), the weight of the mean distance to foreign prototypes (see docs/fidelity.md)."""
    foreign: float = 1e-4
    """λ₃ of Eq. (4), the L1 penalty on head weights to prototypes of other classes."""
    occurrence: float = 0.0
    """Weight of XProtoNet's occurrence loss, for `--regions occurrence`."""
    alignment: float = 0.0
    """Weight of PIP-Net's alignment loss (two views of an image agree), for `--ownership channels`."""
    uniformity: float = 0.0
    """Weight of PIP-Net's uniformity loss (all prototypes are used), for `--ownership channels`."""
    workers: int = 0
    """Data-loading processes; they change the speed, never the result."""
    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    """Mixed-precision training."""
    log: str = ""
    """Experiment trackers, separated by commas: tensorboard, mlflow, wandb (each needs its extra)."""
    tensorboard: bool = False
    """The former spelling of --log tensorboard."""


@settings
class AugmentationConfig:
    """Augmentation of training images; each transform has its own probability (Section 4.3)."""

    rotation: float = 15.0
    """Largest rotation either way, in degrees; 0 turns it off."""
    rotation_probability: float = 0.8
    """Probability of a rotation."""
    shear: float = 10.0
    """Largest shear either way, in degrees."""
    shear_probability: float = 0.8
    """Probability of a shear."""
    perspective: float = 0.2
    """Perspective: largest shift of the corners, as a fraction of half the side."""
    perspective_probability: float = 0.8
    """Probability of a perspective transform."""
    distortion: float = 0.015
    """Elastic distortion: shift of the nodes of a coarse grid, as a fraction of the side."""
    distortion_probability: float = 0.8
    """Probability of a distortion."""
    flip: float = 0.5
    """Probability of a horizontal flip; set 0 where left and right differ, as in chest X-rays."""


@settings
class ExplainingConfig:
    """Defaults of `dprotonet explain` for this run (Section 3.4)."""

    decoder: Literal["fast", "instant", "best", "paper", "sampled"] = "fast"
    """Preset of the MDM decoder at prototype nodes (docs/decoder.md)."""
    image_weight: float = 0.5
    """α of Eq. (18): weight of the image in blended heatmaps."""
    heatmap_weight: float = 0.5
    """β of Eq. (18): weight of the heatmap in blended heatmaps."""


@dataclass(frozen=True)
class Config:
    """A whole run, as asked for; training makes every value final by recipe, mode and network.

    The config of a loaded run is final: replace(config.training, mode="frozen") on it keeps the epochs and
    rates of the old mode. For those of the new one, give a new TrainingConfig(mode="frozen").
    """

    data: DataConfig = field(default_factory=DataConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    explaining: ExplainingConfig = field(default_factory=ExplainingConfig)
    recipe: str = "default"
    """Whose default values: `default`, `parts`, `masks`, `paper`, or those of another network's authors."""


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist or is a folder; give the path of a TOML file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # the last is of something nested without end
        raise UserError(f"{path} is not valid TOML: {error}") from None


def from_tables(kind: type[T], tables: dict[str, Any], *, where: str) -> T:
    """Build a frozen dataclass from TOML tables; missing keys take their default, unknown ones are errors."""
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    values = {}
    for key, value in tables.items():
        if key not in known:
            raise UserError(_unknown_key(key, list(known), where))
        values[key] = _typed(hints[key], value, f"{where}.{key}" if where else key)
    return kind(**values)


def to_tables(config: Any) -> dict[str, Any]:
    """The TOML tables of a dataclass; tuples become lists, and implied values are given from now on."""
    return {item.name: _plain(getattr(config, item.name)) for item in fields(config)}


def by_name(config: "Config") -> dict[str, Any]:
    """Every setting as `section.key`, and the recipe."""
    return tables_by_name(to_tables(config))


def tables_by_name(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The same of TOML tables, which may be those of another version."""
    return {
        name: value
        for section, values in tables.items()
        for name, value in (
            {f"{section}.{key}": item for key, item in values.items()}
            if isinstance(values, dict)
            else {section: values}
        ).items()
    }


def given_tables(config: Any) -> dict[str, dict[str, Any]]:
    """Of every section what somebody gave; a bool counts as given where it is not the default."""
    return {
        section.name: _given(getattr(config, section.name))
        for section in fields(config)
        if is_dataclass(getattr(config, section.name))
    }


def _given(section: Any) -> dict[str, Any]:
    pairs = ((item, getattr(section, item.name)) for item in fields(section))
    return {
        item.name: _plain(value)
        for item, value in pairs
        if not isinstance(value, Implied) and not (isinstance(value, bool) and value == item.default)
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_tables(value)
    for kind, marked in IMPLIED.items():
        if isinstance(value, marked):
            value = kind(value)
    return list(value) if isinstance(value, tuple) else value


def _unknown_key(key: str, known: list[str], where: str) -> str:
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown key '{key}' in {where or 'the config'}; {hint}known keys: {', '.join(known)}"


def _typed(hint: Any, value: Any, where: str) -> Any:
    if type(value) is int and value.bit_length() > 63:
        raise UserError(f"{where} has {value.bit_length()} bits; whole numbers have at most 63")
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise UserError(f"{where} must be a table, not {value!r}")
        return from_tables(typing.cast(type, hint), value, where=where)
    if typing.get_origin(hint) is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in typing.get_args(hint)):
            raise UserError(
                f"{where} is {value!r}; choose one of {', '.join(map(str, typing.get_args(hint)))}"
            )
        return value
    if typing.get_origin(hint) is tuple:
        return _typed_tuple(typing.get_args(hint), value, where)
    return _typed_scalar(hint, value, where)


def _typed_tuple(hints: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) != len(hints):
        raise UserError(f"{where} must be a list of {len(hints)} values, not {value!r}")
    return tuple(_typed(hint, item, where) for hint, item in zip(hints, value, strict=True))


def _typed_scalar(hint: Any, value: Any, where: str) -> Any:
    if type(value) is not hint and (hint, type(value)) != (float, int):
        raise UserError(f"{where} must be {hint.__name__}, not {value!r}")
    return hint(value)
