"""How a config is trained: stages, loss, optimiser, augmentation, and the processes that share the work."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.state import AcceleratorState
from torch.optim import Adam, AdamW

from dprotonet.config import AugmentationConfig, Config, TrainingConfig
from dprotonet.data.transforms import Augment
from dprotonet.experiment.build.trackers import tracker_names
from dprotonet.inference.losses import PrototypeLoss, balanced_weights
from dprotonet.inference.several_labels import LabelLoss
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
from dprotonet.training.processes import PATIENCE, on_cpus
from dprotonet.training.views import BalancedKeys, Sampling, epoch_keys


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


def build_loss(
    config: TrainingConfig, counts: Sequence[int] = (), *, several: bool = False, images: int = 0
) -> PrototypeLoss:
    """`counts` are the training images of each class, which class weights are made of.

    With `several` labels per image, of `images` in all, a label weighs by how many have it not.
    """
    balanced = config.class_weights == "balanced"
    strengths = config.cluster, config.separation, config.foreign, config.label_smoothing
    if several:
        odds = tuple((images - count) / count for count in counts) if balanced else ()
        return LabelLoss(*strengths, odds, config.part_dropout)
    weights = balanced_weights(counts) if balanced else ()
    return PrototypeLoss(*strengths, weights, config.part_dropout)


def build_sampling(config: TrainingConfig) -> Sampling:
    return BalancedKeys(config.seed) if config.sampling == "balanced" else epoch_keys


def build_extra(config: TrainingConfig) -> Extra:
    return Extra(
        occurrence=config.occurrence,
        part_area=config.part_area,
        alignment=config.alignment,
        uniformity=config.uniformity,
        slot_epochs=config.slot_epochs,
    )


def build_accelerator(config: TrainingConfig, log_to: Path | None = None) -> Accelerator:
    """One process or many: accelerate finds out from the environment (torchrun, accelerate launch).

    A run that is trained gives the folder for trackers of `--log` that write files.

    """
    AcceleratorState._reset_state()  # else a second run in this process could not have another precision
    return Accelerator(
        mixed_precision=config.mixed_precision,
        cpu=on_cpus(),
        kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
        log_with=list(tracker_names(config)) or None if log_to else None,
        project_dir=log_to,
    )


def default_cache() -> Path:
    """Where frozen features are kept: DPROTONET_CACHE, or the user's cache folder."""
    base = os.environ.get("DPROTONET_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "dprotonet"
    )
    return Path(base) / "features"
