"""What the engine yields. Progress bars, logs, checkpoints and tests are readers of this one stream."""

from collections.abc import Mapping
from dataclasses import dataclass

from dprotonet.training.evaluation import Predictions
from dprotonet.training.push import Projection


@dataclass(frozen=True)
class StepDone:
    """A batch was learned; loss and accuracy are means since the epoch began."""

    phase: str
    epoch: int
    step: int
    steps: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class EpochDone:
    """An epoch ended. `epoch` counts warm and joint epochs; last-layer epochs share their push's number.

    `steps` counts optimiser steps since training began: how long an epoch is depends on `views_per_epoch`.
    It is None in a run resumed from a checkpoint of an earlier version, which did not count them.
    """

    phase: str
    epoch: int
    terms: Mapping[str, float]
    train_accuracy: float
    val_accuracy: float
    seconds: float
    steps: int | None = 0


@dataclass(frozen=True)
class PushDone:
    """Prototypes were pushed; validation accuracy just before and just after."""

    epoch: int
    val_before: float
    val_after: float
    projection: Projection
    seconds: float


@dataclass(frozen=True)
class RoundDone:
    """A push and its last-layer phase are over: a model that may be kept. Chosen on validation data only.

    `predictions` are those of the validation images.
    """

    epoch: int
    val_accuracy: float
    val_loss: float
    kept: bool
    stop: bool
    predictions: Predictions


Event = StepDone | EpochDone | PushDone | RoundDone
