"""How many epochs a run takes: those asked for, rounded up so that it ends at a push.

Without the push the prototypes of its last epochs would be nobody's regions (training/phases.py).
"""

from collections.abc import Collection
from dataclasses import dataclass

from dprotonet.config import Config
from dprotonet.errors import UserError
from dprotonet.experiment.build.training import build_stages
from dprotonet.training.phases import planned_epochs, pretraining


@dataclass(frozen=True)
class Epochs:
    """Warm and joint epochs, as the config has them and as they are taken; `why` they differ, in words."""

    asked: int
    taken: int
    why: str

    @classmethod
    def of(cls, config: Config) -> "Epochs":
        training = config.training
        judged = config.network.network == "blackbox"
        event = "it is judged" if judged else "a push comes"
        warm = f"{training.warm_epochs} are warm, and " if training.warm_epochs > training.epochs else ""
        stages = build_stages(config)
        taken = planned_epochs(stages) - pretraining(stages)
        return cls(training.epochs, taken, f"{warm}{event} every {training.push_every}")


def check_pushes(config: Config, given: Collection[str]) -> None:
    """Refuse a distance between pushes, `given` by `section.key`, that is longer than the whole training.

    Rounding up to the first push would train many times the epochs that were asked for.
    """
    training = config.training
    epochs = max(training.epochs, training.warm_epochs)
    if "training.push_every" in given and training.push_every > epochs:
        raise UserError(
            f"--push-every {training.push_every} is more than all {epochs} epochs, and training ends at a "
            f"push: give --push-every {epochs}, or --epochs {training.push_every} if that is what you want"
        )
