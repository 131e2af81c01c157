"""What a run's logits mean in per cent: the temperature they are divided by before the softmax.

Fitted to the validation images at the end of training, or later by `dprotonet calibrate`, and kept in the run
folder as calibration.json with a digest of the weights it belongs to. Only probabilities change: logits,
evidence and the predicted class stay. A run without it states the softmax of its logits, as it is.
"""

import json
import logging
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.files import write_text
from dprotonet.metrics.calibration import fitted_temperature, tempered
from dprotonet.training.checkpoint import weights_digest

logger = logging.getLogger(__name__)

FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """Probabilities are `floor` + what is left × softmax(logits / `temperature`); fitted to `images`."""

    temperature: float
    floor: float  # the least probability of any class
    images: int
    weights: str  # digest of the network it belongs to

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of every class, from logits (…, C)."""
        return tempered(logits, self.temperature, self.floor)

    def fits(self, network: nn.Module) -> bool:
        """Whether it was fitted to these weights."""
        return self.weights == weights_digest(network)

    def write(self, folder: Path) -> None:
        write_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Calibration | None":
        """What the run folder has; None where it has nothing."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            return checked(cls(**json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path} is damaged ({error}); delete it and make it anew with dprotonet calibrate"
            ) from None


def calibration_of(logits: Tensor, labels: Tensor, network: nn.Module) -> Calibration:
    """The temperature from logits (N, C) and labels (N,) of images that were not trained on.

    N images cannot vouch for more than (N + 1) / (N + 2), which is what Laplace's rule of succession expects
    of the next answer after N right ones. So the truth is smoothed by 1 / (N + 2) for the fit, and no class
    is ever stated with less than its part of that.
    """
    count, classes = logits.shape
    doubt = 1 / (count + 2)
    temperature = fitted_temperature(logits, labels, smoothing=doubt)
    return Calibration(temperature, doubt / max(classes - 1, 1), count, weights_digest(network))


def shares_of(logits: Tensor, calibration: Calibration | None) -> Tensor:
    """Probabilities of logits (…, C): calibrated, or their softmax where nothing is known."""
    return logits.softmax(dim=-1) if calibration is None else calibration.probabilities(logits)


def stored_calibration(folder: Path, network: nn.Module) -> Calibration | None:
    """What a run folder has for this network; one of other weights counts as none."""
    found = Calibration.read(folder)
    if found is not None and not found.fits(network):
        logger.warning("%s belongs to other weights; make it anew with dprotonet calibrate", folder / FILE)
        return None
    return found


def keep_calibration(folder: Path, known: Calibration | None, network: nn.Module) -> None:
    """Into a run folder what belongs to this network; one of other weights is not left lying there."""
    if known is not None and known.fits(network):
        known.write(folder)
    else:
        (folder / FILE).unlink(missing_ok=True)


def checked(found: Calibration) -> Calibration:
    """As it is, if its numbers can be used."""
    numbers = (found.temperature, found.floor, found.images)
    if not all(type(value) in (int, float) and math.isfinite(value) and value > 0 for value in numbers):
        raise ValueError("temperature, floor and images must be numbers above 0")
    if not found.floor < 0.5 or not isinstance(found.weights, str):
        raise ValueError("floor must be below 0.5, and weights a digest")
    return found
