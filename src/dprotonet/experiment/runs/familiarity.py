"""Whether an image is like those that a run has learned from, and what people are told if it is not.

Two things say it: the backbone's features (`known_features.py`) and, where there are enough validation
images, the distances to prototypes, which are joined with the last level of the features. Measured at the
end of training or later by `dprotonet familiarity`, kept in the run folder as familiarity.json and
familiarity.safetensors. They belong to one backbone and one set of prototypes: with others they say nothing,
so they carry their digests.
"""

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.runs import known_features
from dprotonet.experiment.runs.known_features import (
    KnownFeatures,
    MeasuredFeatures,
    enough,
    evenly,
    share_told,
)
from dprotonet.files import read_json, write_text
from dprotonet.inference.familiarity import (
    Joined,
    class_strangeness,
    conformal_threshold,
    joined_limits,
    strangeness,
)
from dprotonet.inference.presence import ChannelMaximum
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import DProtoNet, Network
from dprotonet.percent import percent
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.training.views import Keys, ViewSource, chunks, load

logger = logging.getLogger(__name__)

FILE = "familiarity.json"
STATISTIC = "distance to the nearest prototype"
OF_PARTS = "distance to the nearest prototype or to the parts of the nearest class, the stranger of the two"
OF_FEATURES = "distance to the features of the training images"
SHARE = 0.05  # of known images that are warned of


@dataclass(frozen=True)
class Familiarity:
    """From when on an image is strange; `share` of known images are, measured on `images` of them.

    `threshold` is that of the distance to prototypes. Where these are parts, `owner` has the class of each,
    and `usual` what the two measures of OF_PARTS are divided by, so that they can be compared. `features` say
    whether the image is like the training images at all; with the statistic OF_FEATURES they alone count.
    `joined` has the weight of prototypes beside the last level of features and the limit of both together;
    where it is empty, as in earlier versions, each counts for itself.
    """

    threshold: float
    share: float
    images: int
    prototypes: str  # digest of the prototypes it belongs to; "" with OF_FEATURES
    statistic: str = STATISTIC
    owner: Sequence[int] = ()
    usual: Sequence[float] = ()
    features: KnownFeatures | None = None
    joined: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name in ("owner", "usual", "joined"):  # JSON has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def facts(self) -> dict[str, Any]:
        """All but the tensors of features, as JSON has it."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        lists = {name: list(found[name]) for name in ("owner", "usual", "joined")}
        return {**found, **lists, "features": None if self.features is None else self.features.facts()}

    @property
    def words(self) -> str:
        """What was measured, in a sentence for the terminal."""
        kinds = [] if self.statistic == OF_FEATURES else [f"{self.statistic} (beyond {self.threshold:.4g})"]
        if self.features is not None:
            kinds.append(f"{OF_FEATURES}, {self.features.fitted} of them")
        return (
            f"an image is strange by the {', or by the '.join(kinds)}; "
            f"so are {percent(self.share)} of images like the {self.images} that limits were set on"
        )

    def distance(self, distances: Tensor | None, levels: Tensor | None = None) -> Tensor:
        """How far images are from what is known, (B,), the limit being 1.

        From distances to prototypes (B, P) and how strange their features are in every level (B, L); the
        strangest counts.
        """
        if self.statistic == OF_FEATURES or distances is None:
            if levels is None:
                raise ValueError("features are needed")
            return levels.double().amax(dim=1)
        far = _measure(distances, self.owner, self.usual).double() / self.threshold
        if levels is None:
            return far
        levels = levels.double()
        if self.joined:
            levels = torch.cat([levels[:, :-1], Joined(*self.joined)(far, levels[:, -1]).unsqueeze(1)], dim=1)
        return torch.cat([levels, far.unsqueeze(1)], dim=1).amax(dim=1)

    def without_prototypes(self) -> "Familiarity | None":
        """What is left where its prototypes are no longer these: the features, if it has them."""
        return None if self.features is None else of_features(self.features, self.images)

    def remeasured(
        self, distances: Tensor | None, network: Network, *, share: float, levels: Tensor | None = None
    ) -> "Familiarity":
        """With other prototypes, by the distances (N, P) of known images; its Gaussians are as they were.

        `levels` are the distances (N, L) of the same images to the features, where it has some.
        """
        if self.statistic == OF_FEATURES or distances is None or not isinstance(network, DProtoNet):
            return self
        if self.features is None:
            return of_prototypes(distances, network, share=share)
        if levels is None or not enough(len(distances), share / 2):
            return of_features(self.features, self.images)
        old = self.features
        measured = MeasuredFeatures(old.taken, old.spread, levels, levels, old.fitted)
        return of_both(distances, network, measured, share=share)

    def fits(self, network: Network) -> bool:
        """Whether it was measured with this backbone and these prototypes."""
        if self.features is not None and not self.features.fits(network):
            return False
        if self.statistic == OF_FEATURES:
            return True
        return isinstance(network, DProtoNet) and self.prototypes == prototypes_digest(network)

    def write(self, folder: Path) -> None:
        if self.features is not None:
            self.features.write(folder)
        write_text(folder / FILE, json.dumps(self.facts(), indent=1))
        if self.features is None:
            (folder / known_features.FILE).unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path) -> "Familiarity | None":
        """What the run folder has; None where it has nothing."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            content = read_json(path)
            told = content.get("features")
            features = None if told is None else KnownFeatures.read(folder, told)
            if features is None and content.get("statistic") == OF_FEATURES:
                raise ValueError("it goes by features and has none")
            return checked(cls(**{**content, "features": features}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{path} is damaged ({error}); delete it and make it anew with dprotonet familiarity"
            ) from None


def is_familiar(distance: float | None) -> bool | None:
    """Whether an image at this distance looks like what the run knows; None where that is unknown."""
    return None if distance is None else distance <= 1


def warning_of(distance: float | None) -> str:
    """What to tell people of an image at this distance; nothing where it is familiar or unknown.

    Terminal, pictures, report and web page all say it in these words.
    """
    if distance is None or is_familiar(distance):
        return ""
    times = f"{distance:.2f}"
    far = "just beyond the limit" if times == "1.00" else f"{times} times as far as the limit"
    return f"careful: this image is unlike the training images ({far}), so the class may mean nothing"


def stored_familiarity(folder: Path, network: Network) -> Familiarity | None:
    """What a run folder has for this network; a threshold of other prototypes counts as none."""
    found = Familiarity.read(folder)
    if found is None:
        return None
    if not found.fits(network):
        logger.warning(
            "%s belongs to other prototypes or another backbone; make it anew with dprotonet familiarity",
            folder / FILE,
        )
        return None
    return found


def keep_familiarity(folder: Path, known: Familiarity | None, network: Network) -> None:
    """Into a run folder what belongs to this network; one of other prototypes is not left lying there."""
    if known is not None and known.fits(network):
        known.write(folder)
    else:
        for name in (FILE, known_features.FILE):
            (folder / name).unlink(missing_ok=True)


def checked(found: Familiarity) -> Familiarity:
    numbers = (found.threshold, found.share, found.images)
    if not all(type(value) in (int, float) and math.isfinite(value) and value > 0 for value in numbers):
        raise ValueError("threshold, share and images must be numbers above 0")
    if found.joined and not _can_join(found.joined):
        raise ValueError("joined must have a weight from 0 to 1 and a limit above 0")
    known = (STATISTIC, OF_PARTS, OF_FEATURES)
    if found.statistic not in known or not isinstance(found.prototypes, str):
        raise ValueError(f"this version knows the statistics {', '.join(known)} only")
    if found.statistic == OF_PARTS and not _are_of_parts(found.owner, found.usual):
        raise ValueError("owner must have a class for every prototype, usual two numbers above 0")
    return found


def _can_join(joined: Sequence[object]) -> bool:
    numbers = len(joined) == 2 and all(type(value) is float and 0 < value < math.inf for value in joined)
    return numbers and Joined(*joined).weight < 1  # type: ignore[arg-type]


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


def familiarity_of(
    distances: Tensor | None,
    network: Network,
    *,
    share: float = SHARE,
    features: MeasuredFeatures | None = None,
) -> Familiarity | None:
    """The limits, of which `share` of known images exceed one; None where nothing can be measured.

    Of the distances (N, P) of known images that were not trained on, and of `features`, which were measured
    on the same ones. From few images nobody knows how far prototypes may be: then features alone decide.
    """
    if features is None:
        by_prototypes = distances is not None and isinstance(network, DProtoNet)
        return of_prototypes(distances, network, share=share) if by_prototypes else None  # type: ignore[arg-type]
    few = distances is None or not enough(len(distances), share / 2)
    if few or distances is None or not isinstance(network, DProtoNet):
        return of_features(features.limited(network, share), len(features.distances))
    return of_both(distances, network, features, share=share)


def of_both(
    distances: Tensor, network: DProtoNet, features: MeasuredFeatures, *, share: float = SHARE
) -> Familiarity:
    """Prototypes, alone and joined with the last level of features, and other levels: one limit for all."""
    distances = distances[list(evenly(len(distances)))]  # of these images features are known
    owner, usual = _of_parts(distances, network)
    limits = joined_limits(_measure(distances, owner, usual), features.val, share)
    count, statistic = len(distances), OF_PARTS if owner else STATISTIC
    spread = features.spread.with_limits(limits.levels)
    return Familiarity(
        limits.first,
        share_told(count, share),
        count,
        prototypes_digest(network),
        statistic,
        owner,
        usual,
        features.known(network, spread, share_told(count, share)),
        limits.joined,
    )


def of_features(known: KnownFeatures, images: int) -> Familiarity:
    """Features alone; the threshold of a distance to prototypes, which nobody asks for, is 1."""
    return Familiarity(1.0, known.share, images, "", OF_FEATURES, features=known)


def of_prototypes(distances: Tensor, network: DProtoNet, *, share: float = SHARE) -> Familiarity:
    """The threshold from the distances (N, P) of known images that were not trained on."""
    owner, usual = _of_parts(distances, network)
    threshold = conformal_threshold(_measure(distances, owner, usual), share)
    count, digest = len(distances), prototypes_digest(network)
    tiny = torch.finfo(torch.float32).tiny  # all known images lie on prototypes: anything else is strange
    statistic = OF_PARTS if owner else STATISTIC
    return Familiarity(max(threshold, tiny), share_told(count, share), count, digest, statistic, owner, usual)


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
    network: Network, views: ViewSource, *, batch: int = 60, on_progress: Progress | None = None
) -> Tensor | None:
    """Distances (n, P) of plain views, evenly spread if there are more than features are measured on.

    They come to the CPU, and the network's modes stay as they were. None of a black box, and without images.
    """
    if not isinstance(network, DProtoNet) or not len(views):
        return None
    was_training = [(module, module.training) for module in network.modules()]
    network.eval()
    batches = chunks(Keys.of(evenly(len(views)), 0), batch)
    found = []
    for number, view in enumerate(load(views, batches, workers=0), start=1):
        inputs = view.inputs.to(network.head.weight.device)
        found.append(network.evidence(inputs).distances.float().cpu())
        if on_progress is not None:
            on_progress(number, len(batches))
    for module, flag in was_training:
        module.training = flag
    return torch.cat(found)
