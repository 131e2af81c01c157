"""TOML ⇄ frozen dataclasses, strictly: an unknown key is an error that names the known ones.

The numbers with a meaning live here as defaults. A default is *implied*: it holds unless the recipe, the mode
or the network says otherwise (experiment/settings/recipes.py), while what a user gives always holds, even
where it equals the default. Field names are unique over all sections, because the command line offers them
without their section.
"""

import dataclasses
import tomllib
import typing
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from dprotonet.errors import UserError
from dprotonet.implied import IMPLIED, Implied, settings

T = TypeVar("T")


@settings
class DataConfig:
    """Which images."""

    data: str = "birds"
    """`birds` (built in), `folder:PATH` with train/CLASS/* and test/CLASS/*, or a public data set
    (docs/data.md): `cub:PATH`, `cub-cropped:PATH`, `cars:PATH`, `rsna:PATH`, `palm:PATH`."""
    image_size: int = 224
    """Side of the square the network sees (Section 4.3)."""
    val_fraction: float = 0.1
    """Share of the training images set aside for validation where the data has no split of its own."""
    data_seed: int = 0
    """Seed of the validation share, of the built-in birds and of augmentation."""
    folds: int = 0
    """Cross-validate: divide training and validation images into so many parts, each once for validation."""
    fold: int = 0
    """Train this fold alone, 1 to --folds (0: each in turn, into --out/fold-1 …)."""
    allow_leaks: bool = False
    """Go on although the same image is in two splits."""
    image_cache: str = ""
    """Folder that keeps images at the network's size, so that files are decoded once; any name will do."""
    species: int = 12
    """Number of built-in bird species, 2 to 200."""
    train_per_species: int = 60
    val_per_species: int = 15
    test_per_species: int = 40


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
    """A rival's name implies other values of what follows (docs/rivals.md)."""
    backbone: str = "timm:tf_efficientnet_lite0:packaged"
    """`timm:NAME[:WEIGHTS]`, WEIGHTS being none, imagenet, packaged or a local file."""
    levels: int = 1
    """How many of the backbone's last resolutions are joined into one feature map at the finest of them; 1 is
    its last map only."""
    level_channels: int = 256
    """Channels of a joined map."""
    level_power: float = 1.0
    """Power that activations of the coarser levels are raised to before they are joined; 0.5 evens them out.
    """
    channels: Literal[1, 3] = 3
    """Colour or grey input."""
    dimension: int = 512
    """D₁, channels after the shaping net."""
    activation: Literal["none", "sigmoid", "softmax"] = "none"
    """What ends the shaping net; ProtoPNet has a sigmoid, PIP-Net a softmax over channels."""
    regions: Literal["masks", "points", "patches", "occurrence", "parts"] = "masks"
    """What prototypes are compared with: views of the whole map through masks, single places, blocks of them,
    a learned map for each prototype, or parts that are found in every image (docs/parts.md)."""
    parts: int = 10
    """Number of parts, for `--regions parts`: one for each prototype of a class. Of --parts and
    --prototypes-per-class the one implies the other; if both are given, prototypes are dealt out in turn."""
    whole: float = 0.0
    """Weight of the image as a whole beside its parts, that of a part being 1, for `--regions parts`; 0 does
    without. It takes one of --prototypes-per-class."""
    mask_style: Literal["spatial", "uniform", "file"] = "spatial"
    """`uniform` is the paper's; `spatial` smooth and shared by channels; `file` reads --mask-file."""
    masks: int = 720
    """Number of unrestricted feature masks."""
    mask_grid: int = 3
    """Side of the random grid that a spatial mask is enlarged from."""
    mask_contrast: float = 0.5
    """How deep a spatial mask goes: 1 nearly to 0; the smaller, the nearer to the global average."""
    mask_seed: int = 0
    mask_file: str = ""
    """An .npy array (R, D or 1, h, w) in [0, 1]."""
    patch: tuple[int, int] = (1, 1)
    """Height and width of a patch, for `--regions patches`."""
    prototypes_per_class: int = 10
    """Of its own; with `--ownership pool` slots of a class for prototypes of the pool."""
    ownership: Literal["class", "pool", "channels"] = "class"
    """Whose prototypes are: each a class's own; a `pool` for all classes, whose slots choose (ProtoPool); or
    the `channels` of the map, --dimension of them, that nobody owns (PIP-Net)."""
    pool: int = 202
    """Number of prototypes for `--ownership pool`; ProtoPool's for 200 species of birds."""
    similarity: Literal["log", "cosine"] = "log"
    epsilon: float = 1e-12
    """ε of Eq. (2)."""
    head_own: float = 1.0
    """Weight of the head between a class and its prototypes, at the start."""
    head_other: float = -0.5
    """Weight of the head between a class and prototypes of others, at the start."""


@settings
class TrainingConfig:
    """Learning (Algorithm 2 and Section 4.3)."""

    mode: Literal["joint", "frozen", "auto"] = "joint"
    """`joint` trains the backbone too, as in the paper; `frozen` caches its features, for laptops; `auto`
    tries both on three folds of the training images and takes the better (docs/training.md)."""
    seed: int = 0
    epochs: int = 30
    """Warm and joint epochs, at least the warm ones; rounded up to end at a push."""
    views_per_epoch: int = 1
    """How often an epoch sees each training image, each time another augmented view. ProtoPNet stores 30
    augmented copies of each image, the paper an unknown number, so their epochs are as many times longer."""
    warm_epochs: int = 5
    push_every: int = 10
    pretrain_epochs: int = 0
    """Epochs before all others that learn prototypes without classes, for `--ownership channels`."""
    slot_epochs: int = 10
    """Epochs within which slots decide for prototypes, for `--ownership pool`."""
    last_layer_epochs: int = 20
    """Epochs of the head alone after each push."""
    patience: int = 2
    """Pushes without a better validation accuracy before training stops."""
    batch_size: int = 60
    """Images that a step learns from, over all processes."""
    accumulate: int = 1
    """In how many pieces, one after another, a process computes its part of a step: so many times less
    memory, the same step (docs/training.md)."""
    checkpoint_activations: bool = False
    """Compute the backbone's activations anew where a step needs them back: far less memory, a third more
    time."""
    memory_format: Literal["auto", "channels_first", "channels_last"] = "auto"
    """How weights and activations of a backbone that learns lie in memory; `auto` is `channels_last` on CPUs,
    where it is faster."""
    push_images: int = 40
    """M of multi-image prototype learning; 1 is the single-image push of earlier work."""
    push_sources: int = 1
    """How many images of its class a prototype is mixed from, M views of each; the paper has one."""
    augmentations: int = 4
    """Augmented views of each training image that are kept, in frozen mode or with --frozen-stages."""
    rate_backbone: float = 1e-4
    rate_shaping: float = 3e-3
    rate_prototypes: float = 3e-3
    rate_head: float = 1e-4
    rate_parts: float = 1e-2
    """Of the maps that say where parts are, for `--regions parts`."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """`adam` adds the weight decay to the gradient, `adamw` takes it off the weights."""
    label_smoothing: float = 0.0
    """Share of the cross-entropy's target that falls to all classes alike."""
    class_weights: Literal["none", "balanced"] = "none"
    """`balanced`: the fewer images a class has, the more each counts in the cross-entropy: classes alike."""
    sampling: Literal["natural", "balanced"] = "natural"
    """`balanced`: an epoch shows every class equally often, `natural` every image."""
    frozen_stages: int = 0
    """How many of the backbone's first resolutions stay frozen in joint mode (EfficientNet-Lite0: 3 of 5 to
    stride 8). What they make of each view is kept, as in frozen mode, so that a step takes a fraction of the
    time; --augmentations says how many views there are."""
    batchnorm: Literal["learns", "frozen"] = "learns"
    """Statistics of the backbone's BatchNorm in joint mode: of the batches, or as they were pre-trained."""
    shaping_dropout: float = 0.0
    """Share of the channels that each layer of the shaping net does without in a training step; of a black
    box, which has none, of the pooled features."""
    part_dropout: float = 0.0
    """Share of the parts that a training step does without in an image, for `--regions parts`."""
    part_area: float = 1.0
    """Share of the image that all parts together may have before it costs, for `--regions parts`; 1: all."""
    part_foreground: Literal["border", "energy"] = "border"
    """Parts begin as clusters that keep away from the image's border, or of places that look like what tells
    the classes apart, for `--regions parts`."""
    prototypes_learn: Literal["always", "never"] = "always"
    """`never`: prototypes are region vectors of training images from the start, pushed before the first epoch
    and again and again; in between the shaping net learns to see images by them."""
    head_learns: Literal["always", "last", "never"] = "always"
    """When the head learns: in all stages (Algorithm 2), only in the last-layer stage, or not at all."""
    prototype_start: Literal["regions", "uniform"] = "regions"
    """Prototypes begin as region vectors of training images, or as draws from U(0, 1)."""
    shaping_start: Literal["random", "discriminant"] = "random"
    """The shaping net begins at random, or as the projection that tells the training classes apart; of a
    black box, its head."""
    rate_schedule: Literal["cosine", "constant", "step"] = "cosine"
    """How learning rates go over the epochs; the paper names no decay. `step` is ProtoPNet's."""
    decay_backbone: float = 1e-3
    """Weight decay of the backbone; the paper names none, ProtoPNet has this one."""
    decay_shaping: float = 3e-2
    """Weight decay of the shaping net, chosen on validation data."""
    cluster: float = 0.8
    """λ₁ of Eq. (4)."""
    separation: float = -0.08
    """λ₂ of Eq. (4), the weight of the mean distance to foreign prototypes (see docs/fidelity.md)."""
    foreign: float = 1e-4
    """λ₃ of Eq. (4)."""
    occurrence: float = 0.0
    """Weight of XProtoNet's occurrence loss, for `--regions occurrence`."""
    alignment: float = 0.0
    """Weight of PIP-Net's loss that two views of an image agree, for `--ownership channels`."""
    uniformity: float = 0.0
    """Weight of PIP-Net's loss that all prototypes are used, for `--ownership channels`."""
    workers: int = 0
    """Processes that read images ahead; they change the speed, never the result."""
    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    log: str = ""
    """Where curves go beside the run folder, separated by commas: tensorboard (files in the run folder),
    mlflow, wandb (each needs the extra of its name)."""
    tensorboard: bool = False
    """The former spelling of --log tensorboard."""


@settings
class AugmentationConfig:
    """How training images are warped and mirrored, each way by its own chance (Section 4.3)."""

    rotation: float = 15.0
    """Largest turn either way, in degrees; 0 turns it off."""
    rotation_probability: float = 0.8
    shear: float = 10.0
    """Largest slant either way, in degrees."""
    shear_probability: float = 0.8
    perspective: float = 0.2
    """Share of half the side within which the corners wander."""
    perspective_probability: float = 0.8
    distortion: float = 0.015
    """Share of the side by which the nodes of a coarse grid move."""
    distortion_probability: float = 0.8
    flip: float = 0.5
    """Probability of the mirror image; 0 where left and right differ, as in chest X-rays."""


@settings
class ExplainingConfig:
    """How `dprotonet explain` shows this run unless told otherwise (Section 3.4)."""

    decoder: Literal["fast", "best", "paper", "sampled"] = "fast"
    """Preset of the MDM decoder at prototype nodes (docs/decoder.md)."""
    image_weight: float = 0.5
    """α of Eq. (18), on the sheets of explanations."""
    heatmap_weight: float = 0.5
    """β of Eq. (18), on the sheets of explanations."""


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
    """Which values are implied: those of `default`, `parts`, `masks`, the `paper`, or a rival's authors."""


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist or is a folder; give the path of a TOML file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
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
    return {
        name: value
        for section, values in to_tables(config).items()
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
    return tuple(_typed_scalar(hint, item, where) for hint, item in zip(hints, value, strict=True))


def _typed_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is hint:
        return value
    raise UserError(f"{where} must be {hint.__name__}, not {value!r}")
