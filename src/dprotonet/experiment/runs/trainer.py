"""One training run from config to run folder, as a stream of events.

Readers of the stream show progress; this file writes what belongs into the run folder. Only the main
process writes.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn

from dprotonet.config import Config, DataConfig
from dprotonet.data.base import ImageData, Splits
from dprotonet.data.subset import Subset
from dprotonet.data.transforms import Augment, Views
from dprotonet.encoder.backbone import Backbone
from dprotonet.encoder.level_averages import seen_once
from dprotonet.encoder.regions import Parts
from dprotonet.encoder.shaping import Shaping
from dprotonet.encoder.stages import divided
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import (
    build_splits,
    check_data,
    class_counts,
    has_rows,
    needed_images,
)
from dprotonet.experiment.build.network import build_network, build_normalise
from dprotonet.experiment.build.trackers import check_trackers, tracked
from dprotonet.experiment.build.training import (
    build_accelerator,
    build_augment,
    build_extra,
    build_loss,
    build_optimizer,
    build_rate_share,
    build_sampling,
    build_stages,
    default_cache,
)
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.measuring import Measuring
from dprotonet.experiment.runs.network_start import start_network
from dprotonet.experiment.runs.resumable import changed_keys
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.run_writer import RunWriter
from dprotonet.experiment.runs.train_warnings import warn_of_data, warn_of_epochs
from dprotonet.experiment.settings.config_check import check_config, check_trainable
from dprotonet.experiment.settings.recipes import resolve
from dprotonet.launch import processes
from dprotonet.network import BlackBox, Network
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import kept_checkpoint, load_checkpoint
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.events import Event
from dprotonet.training.features import FeatureCache, FeatureViews
from dprotonet.training.levels import fitted_levels
from dprotonet.training.memory import checkpoint_activations, lay_out, memory_remedies, recompute
from dprotonet.training.phases import WeightDecay
from dprotonet.training.push import Pusher
from dprotonet.training.score_rows import Room
from dprotonet.training.views import ViewSource

logger = logging.getLogger(__name__)

_WORTH_SAYING = 10**8  # bytes of features on the disk


@dataclass(frozen=True)
class Preparing:
    """Work before training: `what` is at `done` of `total`; `note` is worth a line of its own."""

    what: str
    done: int
    total: int
    note: str = ""


@dataclass
class Trainer:
    """Trains what `config` describes into the folder `out`.

    Settings that the config leaves open are made final here (experiment/settings/recipes.py); `origins` says
    where each came from, where the caller knows better than "given".
    """

    config: Config
    out: Path
    resume: bool = False
    overwrite: bool = False
    cache: Path = field(default_factory=default_cache)
    on_scan: Progress | None = None
    splits: Callable[[DataConfig, Progress | None], Splits] = build_splits
    origins: Mapping[str, str] = field(default_factory=dict)
    on_open: Callable[[], None] | None = None  # in the main process, once the folder stands

    def __post_init__(self) -> None:
        resolved = resolve(self.config)
        self.config, self.origins = resolved.config, {**resolved.origins, **self.origins}

    def run(self) -> Iterator[Preparing | Event]:
        """Train to the end, the folder claimed. After the first RoundDone it can be loaded."""
        check_config(self.config)
        with claimed(self.out):
            yield from self.run_claimed()

    def run_claimed(self) -> Iterator[Preparing | Event]:
        """The same for a caller who has claimed the folder."""
        training = self.config.training
        if training.batch_size < 2 * processes():
            raise UserError(
                f"--batch-size {training.batch_size} is for all {processes()} processes together, and each "
                f"needs two images of a batch: give {2 * processes()} at least, or start fewer processes"
            )
        joint = training.mode == "joint"
        with memory_remedies(batch=training.batch_size, accumulate=training.accumulate, joint=joint):
            yield from self._run()

    def _run(self) -> Iterator[Preparing | Event]:
        check_config(self.config)
        check_trainable(self.config)
        check_trackers(self.config.training)
        if self.config.data.folds and not self.config.data.fold:
            raise UserError("data.folds is set, but not data.fold; `dprotonet train --folds` trains them all")
        folder = RunFolder(self.out)
        self._check_out(folder)
        splits = self.splits(self.config.data, self.on_scan)
        check_data(splits.train, needed_images(self.config.network))
        if not self.resume and self.config.data.fold <= 1:  # once, also where fold after fold is trained
            warn_of_data(splits, self.config.training)
        network = self.new_network(splits)
        accelerator = build_accelerator(self.config.training, log_to=self.out / "tensorboard")
        self._open(folder, accelerator)
        if accelerator.is_main_process:
            warn_of_epochs(self.config)
        engine = yield from self.engine(network, splits, accelerator)
        self._resume_or_start(engine, folder, splits)
        measuring = self._measuring(network, splits)
        measuring.take(engine.train_views, engine.val_views)
        writer = RunWriter(
            self.config, folder, network, splits.train, engine, measuring, _data_digest(splits)
        )
        with tracked(accelerator, self.config, folder.path):
            for event in engine.run(build_stages(self.config)):
                if accelerator.is_main_process:
                    writer.write(event)
                yield event
        accelerator.wait_for_everyone()

    def new_network(self, splits: Splits) -> Network:
        torch.manual_seed(self.config.training.seed)
        network = build_network(
            self.config.network,
            classes=len(splits.train.classes),
            image_size=self.config.data.image_size,
            pretrained=True,
            several=has_rows(splits.train),
        )
        for part in network.modules():
            if isinstance(part, (Shaping, Parts, BlackBox)):
                part.dropout = self.config.training.shaping_dropout
        self._fit_memory(network)
        return network

    def _fit_memory(self, network: Network) -> None:
        """What a backbone that learns keeps for the backward pass."""
        training, backbone = self.config.training, network.encoder.backbone
        if training.mode == "frozen":
            return
        if training.checkpoint_activations:
            assert isinstance(backbone, Backbone)
            checkpoint_activations(backbone, image_size=self.config.data.image_size)
            if training.frozen_stages:
                recompute(backbone, False)  # but the rest of it, in `divided`: the first stages never do
        self.divided(network)  # to say so before anything is written, where it cannot be done

    def _check_out(self, folder: RunFolder) -> None:
        """Before any work: whether the run may be written, and if resumed, that it is still the same run."""
        if not self.resume:
            folder.check_free(overwrite=self.overwrite)
            return
        changed = changed_keys(folder.read_config(), self.config)
        if changed:
            raise UserError(f"--resume cannot change {', '.join(changed)}; train into another --out instead")

    def _open(self, folder: RunFolder, accelerator: Accelerator) -> None:
        accelerator.wait_for_everyone()  # every process has looked at the folder before one changes it
        if accelerator.is_main_process:
            if self.resume:
                folder.tidy()
            else:
                folder.create(overwrite=self.overwrite)
            folder.write_config(self.config, self.origins)
            folder.write_environment()
            if self.on_open is not None:
                self.on_open()
        accelerator.wait_for_everyone()

    def _resume_or_start(self, engine: Engine, folder: RunFolder, splits: Splits) -> None:
        kept = kept_checkpoint(folder.checkpoint) if self.resume else None
        size = 0
        if kept is not None:
            extra = load_checkpoint(kept, engine)
            if extra.get("data") != _data_digest(splits):
                raise UserError("the data changed since the run began; train into another --out")
            size = int(extra["metrics_size"])
        else:
            if self.resume:
                logger.warning("no checkpoint in %s yet; starting anew", folder.path)
            start_network(engine.network, engine.train_views, self.config.training, engine.accelerator.device)
        if engine.accelerator.is_main_process:
            folder.cut_metrics(size)

    def engine(
        self, network: Network, splits: Splits, accelerator: Accelerator
    ) -> Generator[Preparing, None, Engine]:
        """What trains `network`, with features of a backbone that rests computed."""
        training = self.config.training
        network.to(accelerator.device)
        if training.mode == "joint":
            lay_out(network.encoder.backbone, training.memory_format, accelerator.device)
        yield from self.levels(network, splits.train, accelerator)
        train_views = self.views(network, splits.train, augment=self.augment)
        val_views = self.views(network, splits.val)
        sources: tuple[ViewSource, ViewSource] = (train_views, val_views)
        first, trained = self.divided(network)
        if first is not None:
            first.requires_grad_(False)
            train = yield from self.frozen(train_views, first, accelerator, training.augmentations)
            val = yield from self.frozen(val_views, first, accelerator, 0)
            sources = (train, val)
        workers = 0 if first is not None else training.workers
        rate_share = build_rate_share(training)
        decay = WeightDecay(training.decay_backbone, training.decay_shaping)
        settings = EngineSettings(
            training.seed,
            training.batch_size,
            workers,
            training.patience,
            training.views_per_epoch,
            decay,
            rate_share,
            build_optimizer(training),
            frozen_norm=self.config.training.batchnorm == "frozen",
            accumulate=training.accumulate,
            recomputes=training.checkpoint_activations and training.mode == "joint",
            sampling=build_sampling(training),
            balanced="balanced" in (training.class_weights, training.sampling),
            scratch=self.cache,
        )
        yield from self._told_scores(network, len(splits.train) * training.views_per_epoch, accelerator)
        pusher = Pusher(accelerator, training.push_images, training.push_sources, settings.at_once, workers)
        return Engine(
            trained,
            sources[0],
            sources[1],
            accelerator,
            pusher,
            loss=build_loss(
                training,
                class_counts(splits.train),
                several=has_rows(splits.train),
                images=len(splits.train),
            ),
            extra=build_extra(training),
            settings=settings,
        )

    def _told_scores(self, network: Network, views: int, accelerator: Accelerator) -> Iterator[Preparing]:
        """What the last layer's scores will take, before work begins, where they go to disk."""
        if isinstance(network, BlackBox) or not accelerator.is_main_process:
            return
        room = Room(views, len(network.prototype_class), self.cache)
        if room.on_disk:
            yield Preparing("features", 1, 1, room.told)

    def divided(self, network: Network) -> tuple[nn.Module | None, Network]:
        """What stays frozen, if anything, and the network behind it; both share the network's parameters."""
        training, backbone = self.config.training, network.encoder.backbone
        if training.mode == "frozen":
            return backbone, network.without_backbone()
        if not training.frozen_stages:
            return None, network
        assert isinstance(backbone, Backbone)
        halves = divided(backbone, training.frozen_stages, image_size=self.config.data.image_size)
        if training.checkpoint_activations:
            recompute(halves.rest, True)
        return halves.first, network.with_backbone(halves.rest)

    def levels(self, network: Network, data: ImageData, accelerator: Accelerator) -> Iterator[Preparing]:
        """Fit what joins levels of the backbone; to the images of all folds, so that they share features."""
        views = self.views(network, data.whole if isinstance(data, Subset) else data)
        model = self.out / "model.safetensors" if self.resume else None
        for step in fitted_levels(
            network.encoder.backbone,
            views,
            accelerator,
            self.cache,
            model=model,
            workers=self.config.training.workers,
        ):
            yield Preparing("levels", *step)

    @property
    def augment(self) -> Augment:
        """Of training images."""
        return build_augment(self.config.augmentation)

    def views(self, network: Network, data: ImageData, augment: Augment | None = None) -> Views:
        """Images of a split as this network wants them."""
        normalise = build_normalise(network.encoder.backbone, self.config.network.channels)
        return Views(data, normalise, augment=augment, seed=self.config.data.data_seed)

    def judged(
        self, network: Network, data: ImageData, accelerator: Accelerator
    ) -> Generator[Preparing, None, ViewSource]:
        """Images without augmentation, as the engine's network wants them."""
        first, _ = self.divided(network)
        views = self.views(network, data)
        if first is None:
            return views
        return (yield from self.frozen(views, first, accelerator, 0))

    def _measuring(self, network: Network, splits: Splits) -> Measuring:
        """Of the whole network, which a frozen backbone is part of."""
        views = self.views(network, splits.train), self.views(network, splits.val)
        frozen, batch = self.config.training.mode == "frozen", self.config.training.batch_size
        return Measuring(network, *views, self.config.data.image_size, frozen, batch)

    def frozen(
        self, views: Views, first: nn.Module, accelerator: Accelerator, augmentations: int
    ) -> Generator[Preparing, None, FeatureViews]:
        """What `first` makes of a split, computed now if need be (by one process of each machine).

        Those of a fold are rows of the features of all folds, so that they are computed once for all.
        """
        part = views.data if isinstance(views.data, Subset) else None
        if part is not None:
            views = Views(part.whole, views.normalise, augment=self.augment, seed=views.seed)
        cache = FeatureCache(
            self.cache,
            self.seen(first),
            views,
            augmentations if part is None else self.config.training.augmentations,
            accelerator.device,
            workers=self.config.training.workers,
        )
        if accelerator.is_main_process and not cache.path.exists():
            room = cache.room()
            yield Preparing("features", 0, room.views, room.told if room.needed >= _WORTH_SAYING else "")
        for done, total in cache.build(accelerator):
            yield Preparing("features", done, total)
        features = cache.open()
        return features if part is None else features.part(part.indices, augmentations)

    def seen(self, first: nn.Module) -> nn.Module:
        """What is kept of a pass of `first`: of a whole backbone, which rests, all that anybody will ask."""
        if self.config.training.mode != "frozen":
            return first
        assert isinstance(first, Backbone)
        return seen_once(first, self.config.data.image_size)


def _data_digest(splits: Splits) -> list[str]:
    return [splits.train.fingerprint, splits.val.fingerprint]
