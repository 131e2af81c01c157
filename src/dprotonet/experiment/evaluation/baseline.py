"""What a network on a frozen backbone has to beat: simple classifiers of globally averaged features.

A plan names one in a row, `baseline = "probe"`; the demo shows all of them. They look at averages of the
backbone's own last map, in the views that frozen mode caches and from the same pass, whatever levels networks
join, and choose one number on validation images.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from dprotonet.config import Config, NetworkConfig, TrainingConfig
from dprotonet.experiment.build.data import check_data
from dprotonet.experiment.build.training import build_accelerator
from dprotonet.experiment.evaluation.evaluation import Evaluation
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.training.evaluation import Predictions
from dprotonet.training.features import FeatureViews
from dprotonet.training.pooled_discriminant import fit_discriminant
from dprotonet.training.probe import fit_probe


class Baseline(Protocol):
    """A classifier with its strength of regularisation, which was the best on validation images."""

    @property
    def strength(self) -> float: ...
    @property
    def val_accuracy(self) -> float: ...
    def predictions(self, views: FeatureViews) -> Predictions: ...


BASELINES: Mapping[str, Callable[..., Baseline]] = {"probe": fit_probe, "discriminant": fit_discriminant}


class BaselineData(NamedTuple):
    """Features to fit, to choose and to judge a baseline by; `split` is what the last are called."""

    train: FeatureViews
    val: FeatureViews
    judged: FeatureViews
    split: str
    classes: tuple[str, ...]

    def fitted(self, name: str) -> Baseline:
        return BASELINES[name](self.train, self.val, classes=len(self.classes))

    def result(self, name: str) -> dict[str, Any]:
        """Accuracy and the like, and what was chosen."""
        found = self.fitted(name)
        chosen = {"strength": found.strength, "val_accuracy": found.val_accuracy}
        return {**chosen, **Evaluation(self.split, self.classes, found.predictions(self.judged)).summary()}


def baseline_config(config: Config) -> Config:
    """What frozen features depend on: configs that differ in anything else have the same baselines."""
    network, training = config.network, config.training
    return final_config(
        Config(
            config.data,
            NetworkConfig(network="blackbox", backbone=network.backbone, channels=network.channels),
            TrainingConfig(
                mode="frozen",
                seed=training.seed,
                augmentations=training.augmentations,
                workers=training.workers,
            ),
            config.augmentation,
        )
    )


def baseline_data(trainer: Trainer) -> Generator[Preparing, None, BaselineData]:
    """The features of what `trainer` would train on, from its cache or into it; nothing is trained.

    Baselines of a fold are judged on its validation images: test images are not looked at.
    """
    if trainer.config.training.mode != "frozen":
        trainer = replace(trainer, config=baseline_config(trainer.config))
    config, splits = trainer.config, trainer.splits(trainer.config.data, trainer.on_scan)
    check_data(splits.train, 1)
    accelerator = build_accelerator(config.training)
    network = trainer.new_network(splits).to(accelerator.device)
    yield from trainer.levels(network, splits.train, accelerator)
    backbone = network.encoder.backbone
    views = trainer.views(network, splits.train, augment=trainer.augment)
    train = yield from trainer.frozen(views, backbone, accelerator, config.training.augmentations)
    val = yield from trainer.frozen(trainer.views(network, splits.val), backbone, accelerator, 0)
    classes = tuple(splits.train.classes)
    if config.data.fold:
        return BaselineData(train, val, val, "val", classes)
    test = yield from trainer.frozen(trainer.views(network, splits.test), backbone, accelerator, 0)
    return BaselineData(train, val, test, "test", classes)
