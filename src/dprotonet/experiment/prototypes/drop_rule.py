"""Which prototypes to drop: those named, those that are not pure enough, or those ProtoPNet's rule finds.

A rule answers with the numbers of prototypes and a reason for each, which the cleaned run remembers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.facts import stored_facts
from dprotonet.experiment.prototypes.prune import prune_model
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.inference.prune import PruneRule
from dprotonet.progress import Progress


class DropRule(Protocol):
    """Judges the prototypes of a model on the images it was trained on."""

    def __call__(
        self, model: TrainedModel, train: ImageData, on_progress: Progress | None = None
    ) -> dict[int, str]: ...


@dataclass(frozen=True)
class Named:
    """The prototypes a person named."""

    numbers: Sequence[int]
    reason: str = "named by the user"

    def __call__(
        self, model: TrainedModel, train: ImageData, on_progress: Progress | None = None
    ) -> dict[int, str]:
        return dict.fromkeys(self.numbers, self.reason)


@dataclass(frozen=True)
class Impure:
    """Prototypes whose purity, on their `nearest` training images at most, is below `purity`."""

    purity: float
    nearest: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.purity <= 1:
            raise UserError(f"--purity is {self.purity}; it is a share, above 0 and up to 1")
        if self.nearest < 1:
            raise UserError(f"--nearest is {self.nearest}; at least one image has to be looked at")

    def __call__(
        self, model: TrainedModel, train: ImageData, on_progress: Progress | None = None
    ) -> dict[int, str]:
        facts = stored_facts(model, train, nearest=self.nearest, on_progress=on_progress)
        return {
            item.prototype: f"purity {item.purity:.2f} is below {self.purity:g}"
            for item in facts
            if item.purity < self.purity
        }


@dataclass(frozen=True)
class ProtoPNetRule:
    """Prototypes with too few nearest training images of their class; a class keeps its best."""

    rule: PruneRule

    def __call__(
        self, model: TrainedModel, train: ImageData, on_progress: Progress | None = None
    ) -> dict[int, str]:
        pruning = prune_model(model, train, rule=self.rule, on_progress=on_progress)
        nearest, least = self.rule.nearest, self.rule.least
        return dict.fromkeys(pruning.dropped, f"fewer than {least} of {nearest} nearest images of its class")
