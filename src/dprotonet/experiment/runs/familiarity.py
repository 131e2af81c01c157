"""Whether an image is like anything a run has learned from: "nothing here looks like what I know".

The threshold comes from validation images, at the end of training or later by `dprotonet familiarity`, and is
kept in the run folder as familiarity.json. It belongs to one set of prototypes: with others it says nothing,
so it carries their digest. A black box has no prototypes and gives no warning.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.files import write_text
from dprotonet.inference.familiarity import class_strangeness, conformal_threshold, rank_of, strangeness
from dprotonet.inference.presence import ChannelMaximum
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import BlackBox, DProtoNet, Network
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.training.views import ProcessShare, ViewSource, load, plain_batches

logger = logging.getLogger(__name__)

FILE = "familiarity.json"
STATISTIC = "distance to the nearest prototype"
OF_PARTS = "distance to the nearest prototype or to the parts of the nearest class, the stranger of the two"
SHARE = 0.05  # of known images that are warned of

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Familiarity:
    """From when on an image is strange; `share` of known images are, measured on `images` of them.

    Where prototypes are parts, `owner` has the class of each, and `usual` what the two measures of OF_PARTS
    are divided by, so that they can be compared.
    """

    threshold: float
    share: float
    images: int
    prototypes: str  # digest of the prototypes it belongs to
    statistic: str = STATISTIC
    owner: Sequence[int] = ()
    usual: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name in ("owner", "usual"):  # JSON has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def distance(self, distances: Tensor) -> Tensor:
        """How far images are from what is known, (B,), the threshold being 1; from distances (B, P)."""
        return _measure(distances, self.owner, self.usual).double() / self.threshold

    def fits(self, network: DProtoNet) -> bool:
        """Whether it was measured with these prototypes."""
        return self.prototypes == prototypes_digest(network)

    def write(self, folder: Path) -> None:
        write_text(folder / FILE, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Familiarity | None":
        """What the run folder has; None where it has nothing."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            return _checked(cls(**json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path} is damaged ({error}); delete it and make it anew with dprotonet familiarity"
            ) from None


def warning_of(distance: float | None) -> str:
    """What to tell people of an image at this distance; nothing where it is familiar or unknown.

    Terminal, pictures, report and web page all say it in these words.
    """
    if distance is None or distance <= 1:
        return ""
    times = f"{distance:.2f}"
    far = "just beyond the limit" if times == "1.00" else f"{times} times as far as the limit"
    return f"careful: nothing here looks like what this run knows ({far}), so the class may mean nothing"


def stored_familiarity(folder: Path, network: Network) -> Familiarity | None:
    """What a run folder has for this network; a threshold of other prototypes counts as none."""
    found = Familiarity.read(folder)
    if found is None or isinstance(network, BlackBox):
        return None
    if not found.fits(network):
        logger.warning(
            "%s belongs to other prototypes; make it anew with dprotonet familiarity", folder / FILE
        )
        return None
    return found


def keep_familiarity(folder: Path, known: Familiarity | None, network: Network) -> None:
    """Into a run folder what belongs to this network; one of other prototypes is not left lying there."""
    if known is not None and not isinstance(network, BlackBox) and known.fits(network):
        known.write(folder)
    else:
        (folder / FILE).unlink(missing_ok=True)


def _checked(found: Familiarity) -> Familiarity:
    numbers = (found.threshold, found.share, found.images)
    if not all(type(value) in (int, float) and math.isfinite(value) and value > 0 for value in numbers):
        raise ValueError("threshold, share and images must be numbers above 0")
    if found.statistic not in (STATISTIC, OF_PARTS) or not isinstance(found.prototypes, str):
        raise ValueError(f"this version knows the statistics '{STATISTIC}' and '{OF_PARTS}' only")
    if found.statistic == OF_PARTS and not _are_of_parts(found.owner, found.usual):
        raise ValueError("owner must have a class for every prototype, usual two numbers above 0")
    return found


def _are_of_parts(owner: Sequence[object], usual: Sequence[object]) -> bool:
    numbers = len(usual) == 2 and all(isinstance(value, float) and 0 < value < math.inf for value in usual)
    return numbers and bool(owner) and all(isinstance(label, int) and label >= 0 for label in owner)


def _measure(distances: Tensor, owner: Sequence[int], usual: Sequence[float]) -> Tensor:
    """How strange images are, (B,), from distances (B, P): the nearest prototype, or what OF_PARTS says."""
    nearest = strangeness(distances)
    if not owner:
        return nearest
    of_class = class_strangeness(distances, torch.tensor(owner, device=distances.device))
    return torch.maximum(nearest / usual[0], of_class / usual[1])


def prototypes_digest(network: DProtoNet) -> str:
    """Another set of prototypes has another digest; channels are what the shaping net makes of them."""
    if isinstance(network.prototypes.assignment, ChannelMaximum):
        named = {**network.encoder.shaping.state_dict(), "channel": network.prototypes.assignment.channel}
        return tensor_digest(named)
    vectors = network.prototypes.vectors.detach().cpu().float().contiguous()
    return hashlib.blake2b(vectors.numpy().tobytes(), digest_size=16).hexdigest()


def familiarity_of(distances: Tensor, network: DProtoNet, *, share: float = SHARE) -> Familiarity:
    """The threshold from the distances (N, P) of known images that were not trained on."""
    owner, usual = _of_parts(distances, network)
    threshold = conformal_threshold(_measure(distances, owner, usual), share)
    count = len(distances)
    told = 1 - rank_of(count, share) / (count + 1)  # with few images more than was asked for
    tiny = torch.finfo(torch.float32).tiny  # all known images lie on prototypes: anything else is strange
    statistic = OF_PARTS if owner else STATISTIC
    return Familiarity(
        max(threshold, tiny), told, count, prototypes_digest(network), statistic, tuple(owner), tuple(usual)
    )


def _of_parts(distances: Tensor, network: DProtoNet) -> tuple[list[int], list[float]]:
    """Class of every prototype and the usual value of both measures, where prototypes are parts.

    The one that 2.5 % of the known images exceed: each measure then gives half of the warnings.
    """
    if not isinstance(network.prototypes.assignment, PartRegion):
        return [], []
    owner = network.prototype_class.cpu()
    both = strangeness(distances), class_strangeness(distances, owner)
    tiny = torch.finfo(torch.float32).tiny
    return owner.tolist(), [max(float(values.quantile(0.975)), tiny) for values in both]


@torch.no_grad()
def known_distances(
    network: DProtoNet, views: ViewSource, *, batch: int = 60, on_progress: Progress | None = None
) -> Tensor:
    """Distances (N, P) of all plain views, on the CPU; the network's modes stay as they were."""
    was_training = [(module, module.training) for module in network.modules()]
    network.eval()
    batches = plain_batches(len(views), batch=batch, share=ProcessShare())
    found = []
    for number, view in enumerate(load(views, batches, workers=0), start=1):
        inputs = view.inputs.to(network.head.weight.device)
        found.append(network.evidence(inputs).distances.float().cpu())
        if on_progress is not None:
            on_progress(number, len(batches))
    for module, flag in was_training:
        module.training = flag
    return torch.cat(found)
