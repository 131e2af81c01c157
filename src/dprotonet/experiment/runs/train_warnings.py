"""What `train` says before it begins, where it would go on and the user might not have meant it."""

import logging

from dprotonet.config import Config, TrainingConfig
from dprotonet.data.base import ImageData, Splits
from dprotonet.experiment.build.data import class_counts, has_rows
from dprotonet.experiment.settings.epochs import Epochs

logger = logging.getLogger(__name__)

FEW_IMAGES = 10  # one of so few validation images is a tenth of the accuracy that the best epoch is chosen by
IMBALANCED = 3  # so many times the images of the smallest class


def warn_of_data(splits: Splits, training: TrainingConfig) -> None:
    """Few validation images, and classes of very different size."""
    if len(splits.val) < FEW_IMAGES:
        logger.warning(
            "only %d validation images in all: choosing the best epoch by so few is a lottery; "
            "add images, or set a larger share of them aside for validation",
            len(splits.val),
        )
    if has_rows(splits.train):
        _warn_of_rare_labels(splits.train)
    elif "balanced" not in (training.class_weights, training.sampling):
        _warn_of_imbalance(splits.train)


def _warn_of_rare_labels(train: ImageData) -> None:
    for name, count in zip(train.classes, class_counts(train), strict=True):
        if count < FEW_IMAGES:
            logger.warning(
                "label '%s' has only %d training images: it is hardly learned from so few", name, count
            )


def _warn_of_imbalance(train: ImageData) -> None:
    counts = class_counts(train)
    most, fewest = (pick(range(len(counts)), key=counts.__getitem__) for pick in (max, min))
    if counts[most] >= IMBALANCED * counts[fewest]:
        logger.warning(
            "class '%s' has %d training images, '%s' only %d: rare classes are easily missed; "
            "--class-weights balanced or --sampling balanced lets all classes count alike",
            train.classes[most],
            counts[most],
            train.classes[fewest],
            counts[fewest],
        )


def warn_of_epochs(config: Config) -> None:
    """Another number than was asked for, and views that repeat."""
    epochs, training = Epochs.of(config), config.training
    if epochs.taken != epochs.asked:
        many = "s" * (epochs.asked != 1)
        logger.warning("%d epoch%s asked for, %d taken: %s", epochs.asked, many, epochs.taken, epochs.why)
    keeps = training.mode == "frozen" or training.frozen_stages > 0
    if keeps and training.views_per_epoch > 1 + training.augmentations:
        logger.warning(
            "views_per_epoch is %d, but %d views of each image are kept, which repeat; "
            "give --augmentations %d for as many",
            training.views_per_epoch,
            1 + training.augmentations,
            training.views_per_epoch - 1,
        )
