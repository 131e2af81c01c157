"""Strings and numbers of a config become objects."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.optim import Adam, AdamW

from dprotonet.config import AugmentationConfig, Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.data.base import ImageData, Splits
from dprotonet.data.birds import bird_splits
from dprotonet.data.cars import cars_splits
from dprotonet.data.cub import cropped_cub_splits, cub_splits
from dprotonet.data.folder import folder_splits
from dprotonet.data.folds import fold_splits
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.palm import palm_splits
from dprotonet.data.reading import Reading
from dprotonet.data.rsna import rsna_splits
from dprotonet.data.transforms import Augment, Normalise
from dprotonet.encoder.backbone import Backbone, BackboneSpec, load_backbone
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.levels import JoinedLevels, Joining
from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Masks, Occurrence, Parts, Patches, Points, spatial_masks, uniform_masks
from dprotonet.encoder.shaping import Beside, Channels, Shaping
from dprotonet.errors import UserError
from dprotonet.experiment.build_inference import build_head, build_prototypes, part_regions, prototype_count
from dprotonet.experiment.trackers import tracker_names
from dprotonet.inference.losses import PrototypeLoss, balanced_weights
from dprotonet.network import BlackBox, DProtoNet, Network
from dprotonet.training.choose_objective import Extra
from dprotonet.training.phases import (
    Judgement,
    LearningRates,
    Stage,
    StepDecay,
    constant,
    half_cosine,
    plan,
    plan_presence,
    plan_without_pushes,
)
from dprotonet.training.views import BalancedKeys, Sampling, epoch_keys

Progress = Callable[[int, int], None]

READERS: Mapping[str, Callable[[Path, Reading], Splits]] = {
    "folder": folder_splits,
    "cub": cub_splits,
    "cub-cropped": cropped_cub_splits,
    "cars": cars_splits,
    "rsna": rsna_splits,
    "palm": palm_splits,
}
"""The words before the colon of --data, and who reads such a folder."""


UNKNOWN_DATA = "unknown"
"""What an imported run has in place of --data."""


def build_splits(config: DataConfig, on_progress: Progress | None = None) -> Splits:
    """`birds`, or a word of READERS and a path, as train, val and test; of a fold where one is named."""
    return _folded(_read_splits(config, on_progress), config)


class RememberedSplits:
    """`build_splits` that reads a data set once, however many runs and folds want it."""

    def __init__(self) -> None:
        self._known: dict[DataConfig, Splits] = {}

    def __call__(self, config: DataConfig, on_progress: Progress | None = None) -> Splits:
        base = replace(config, folds=0, fold=0)
        if base not in self._known:
            self._known[base] = _read_splits(base, on_progress)
        return _folded(self._known[base], config)


def _folded(splits: Splits, config: DataConfig) -> Splits:
    if not config.fold:
        return splits
    return fold_splits(splits, folds=config.folds, fold=config.fold, seed=config.data_seed)


def _read_splits(config: DataConfig, on_progress: Progress | None) -> Splits:
    kind, _, path = config.data.partition(":")
    if kind == "birds" and not path:
        return bird_splits(
            species=config.species,
            train_per_species=config.train_per_species,
            val_per_species=config.val_per_species,
            test_per_species=config.test_per_species,
            seed=config.data_seed,
            size=config.image_size,
        )
    if kind in READERS and path:
        reading = Reading(
            size=config.image_size,
            val_fraction=config.val_fraction,
            seed=config.data_seed,
            allow_leaks=config.allow_leaks,
            cache=ImageCache(Path(config.image_cache).expanduser()) if config.image_cache else None,
            on_progress=on_progress,
        )
        return READERS[kind](Path(path).expanduser(), reading)
    if config.data == UNKNOWN_DATA:
        raise UserError("the run was imported and does not know its data; give --data, here or to import")
    if config.data in READERS:
        raise UserError(f"--data {kind}: where is it? use {kind}:PATH with the path of its folder")
    raise UserError(_unknown_data(config.data, kind))


def _unknown_data(data: str, kind: str) -> str:
    close = get_close_matches(kind, ["birds", *READERS], n=1)
    hint = f"did you mean '{close[0]}'? " if close and close[0] != kind else ""
    forms = ", ".join(f"{word}:PATH" for word in READERS)
    return f"--data {data}: unknown data set; {hint}use birds, {forms}"


def build_network(
    config: NetworkConfig,
    *,
    classes: int,
    image_size: int,
    pretrained: bool,
    masks: Tensor | None = None,
    owner: Sequence[int] | None = None,
) -> Network:
    """The network of a config; `pretrained=False` leaves the backbone's weights to be loaded.

    `masks` and `owner`, the class of each prototype, are those of a stored network, so that loading needs
    neither the masks' seed nor their file, and knows what pruning left.
    """
    spec = BackboneSpec.parse(config.backbone)
    wanted = spec if pretrained else BackboneSpec(spec.name, "none")
    backbone = load_backbone(wanted, in_channels=config.channels, image_size=image_size)
    if config.levels > 1:
        backbone = JoinedLevels(
            backbone,
            config.levels,
            image_size=image_size,
            channels=config.level_channels,
            joining=Joining(power=config.level_power),
        )
    if config.network == "blackbox":
        return _black_box(backbone, backbone.feature_size(image_size), classes)
    count = prototype_count(config, classes)
    shaping = build_shaping(config, backbone.channels, count, fine=backbone.fine_channels)
    size = backbone.feature_size(image_size)
    regions = build_regions(config, size, masks=masks, count=count, channels=backbone.channels)
    prototypes = build_prototypes(config, classes, regions.dimension, owner=owner)
    head = build_head(config, classes, prototypes)
    return DProtoNet(Encoder(backbone, shaping, regions), prototypes, head)


def _black_box(backbone: Backbone, size: tuple[int, int], classes: int) -> BlackBox:
    average = Masks(torch.ones(1, 1, *size), dimension=backbone.channels)
    return BlackBox(Encoder(backbone, nn.Identity(), average), nn.Linear(backbone.channels, classes))


def build_shaping(
    config: NetworkConfig, in_channels: int, prototypes: int, *, fine: int | None = None
) -> nn.Module:
    """The shaping net; where regions are learned, with a second one beside it that says where they are.

    Parts have shaping nets of their own, in `Parts`; here is only where they are, by the `fine` channels.

    Unstated: what XProtoNet's occurrence net looks like inside; ours is a shaping net with a channel for each
    prototype.
    """
    if config.regions == "parts":
        return WithParts(PartMaps(fine or in_channels, config.parts), whole=config.whole > 0)
    if config.activation == "softmax":
        return Channels(in_channels, config.dimension)
    ending = [nn.Sigmoid()] if config.activation == "sigmoid" else []
    shaping = Shaping(in_channels, config.dimension, ending=ending)
    if config.regions == "occurrence":
        return Beside(shaping, Shaping(in_channels, prototypes))
    return shaping


def build_regions(
    config: NetworkConfig,
    size: tuple[int, int],
    *,
    masks: Tensor | None = None,
    count: int = 1,
    channels: int = 1,
) -> Masks | Points | Patches | Occurrence | Parts:
    """The regions of a config; `count` is that of prototypes, for regions that belong to one each, `channels`
    that of the backbone, for regions that shape its features themselves."""
    if config.regions == "occurrence":
        return Occurrence(config.dimension, count, size)
    if config.regions == "parts":
        return Parts(channels, config.dimension, part_regions(config), size)
    if config.regions == "points":
        return Points(config.dimension, size)
    if config.regions == "patches":
        return Patches(config.dimension, size, patch=config.patch)
    return Masks(_masks(config, size) if masks is None else masks, dimension=config.dimension)


def _masks(config: NetworkConfig, size: tuple[int, int]) -> Tensor:
    if config.mask_style == "uniform":
        return uniform_masks(config.masks, config.dimension, size, seed=config.mask_seed)
    if config.mask_style == "spatial":
        return spatial_masks(
            config.masks,
            size,
            seed=config.mask_seed,
            grid=config.mask_grid,
            contrast=config.mask_contrast,
        )
    return _masks_from_file(Path(config.mask_file).expanduser(), size)


def _masks_from_file(path: Path, size: tuple[int, int]) -> Tensor:
    try:
        masks = torch.from_numpy(np.load(path, allow_pickle=False)).float()
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--mask-file {path} cannot be read as an .npy array: {error}") from None
    if masks.ndim != 4 or masks.shape[-2:] != size:
        raise UserError(
            f"--mask-file {path} has shape {tuple(masks.shape)}; "
            f"the feature map needs (R, D or 1, {size[0]}, {size[1]})"
        )
    return masks


def build_normalise(backbone: nn.Module, channels: int) -> Normalise:
    assert isinstance(backbone, Backbone)
    return Normalise(tuple(backbone.mean), tuple(backbone.std), channels=channels)


def build_augment(config: AugmentationConfig) -> Augment:
    return Augment(**vars(config))


def build_stages(config: Config) -> tuple[Stage, ...]:
    training = config.training
    backbone_rate = 0.0 if training.mode == "frozen" else training.rate_backbone
    rates = LearningRates(
        backbone_rate,
        training.rate_shaping,
        training.rate_prototypes,
        training.rate_head,
        part_maps=training.rate_parts,
    )
    epochs, warm, every = training.epochs, training.warm_epochs, training.push_every
    if config.network.network == "blackbox":
        stages = plan_without_pushes(rates, epochs=epochs, warm=warm, judge_every=every)
        # A head that starts as the discriminant is a classifier already: if nothing gets better, it is kept.
        return (Judgement(), *stages) if training.shaping_start == "discriminant" else stages
    if config.network.ownership == "channels":
        pretrain = training.pretrain_epochs
        return plan_presence(rates, pretrain=pretrain, epochs=epochs, warm=warm, locate_every=every)
    return plan(
        rates,
        epochs=epochs,
        warm=warm,
        push_every=every,
        last_layer=training.last_layer_epochs,
        head_learns=training.head_learns,
        prototypes_learn=training.prototypes_learn,
    )


def build_rate_share(config: TrainingConfig) -> Callable[[int, int], float]:
    if config.rate_schedule == "step":
        return StepDecay(config.warm_epochs)
    return half_cosine if config.rate_schedule == "cosine" else constant


def build_optimizer(config: TrainingConfig) -> type[Adam] | type[AdamW]:
    return AdamW if config.optimizer == "adamw" else Adam


def build_loss(config: TrainingConfig, counts: Sequence[int] = ()) -> PrototypeLoss:
    """`counts` are the training images of each class, which class weights are made of."""
    weights = balanced_weights(counts) if config.class_weights == "balanced" else ()
    strengths = config.cluster, config.separation, config.foreign, config.label_smoothing
    return PrototypeLoss(*strengths, weights, config.part_dropout, config.part_area)


def build_sampling(config: TrainingConfig) -> Sampling:
    return BalancedKeys(config.seed) if config.sampling == "balanced" else epoch_keys


def build_extra(config: TrainingConfig) -> Extra:
    return Extra(config.occurrence, config.alignment, config.uniformity, config.slot_epochs)


def build_accelerator(config: TrainingConfig, log_to: Path | None = None) -> Accelerator:
    """One process or many: accelerate finds out from the environment (torchrun, accelerate launch).

    A run that is trained gives the folder for trackers of `--log` that write files.

    Without GPUs it has to be told that the processes belong together: they would all train on their own.
    """
    AcceleratorState._reset_state()  # else a second run in this process could not have another precision
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    gpus = torch.accelerator.is_available() and not torch.backends.mps.is_available()
    return Accelerator(
        mixed_precision=config.mixed_precision,
        cpu=several and not gpus,
        log_with=list(tracker_names(config)) or None if log_to else None,
        project_dir=log_to,
    )


def default_cache() -> Path:
    """Where frozen features are kept: DPROTONET_CACHE, or the user's cache folder."""
    base = os.environ.get("DPROTONET_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "dprotonet"
    )
    return Path(base) / "features"


def needed_images(config: NetworkConfig) -> int:
    """Of each class: one for every prototype, no more than one image being the source of each.

    Prototypes of parts may come from one image: they are different places of it. Those that classes share
    come from images of any of them.
    """
    alone = config.network == "blackbox" or config.regions == "parts" or config.ownership != "class"
    return 1 if alone else config.prototypes_per_class


def check_data(train: ImageData, prototypes_per_class: int) -> None:
    """Enough classes and enough images for the prototypes asked for."""
    if len(train.classes) < 2:
        raise UserError(
            f"only one class, '{train.classes[0]}'; a classifier needs at least two class folders"
        )
    counts = class_counts(train)
    fewest = min(range(len(counts)), key=counts.__getitem__)
    if counts[fewest] < prototypes_per_class:
        raise UserError(
            f"class '{train.classes[fewest]}' has {counts[fewest]} training images, fewer than its "
            f"{prototypes_per_class} prototypes; add images or use "
            f"--prototypes-per-class {max(counts[fewest], 1)}"
        )


def class_counts(data: ImageData) -> list[int]:
    """How many images each class has."""
    return np.bincount(np.asarray(data.labels), minlength=len(data.classes)).tolist()
