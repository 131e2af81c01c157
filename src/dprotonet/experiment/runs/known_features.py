"""The features of the images that a run knows: measured at the end of training, kept in its folder.

familiarity.safetensors has the Gaussians of all levels; facts about them stand in familiarity.json, with the
digests of these tensors and of the backbone that they belong to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.encoder.backbone import Backbone
from dprotonet.encoder.level_averages import LevelAverages, Levels, Seen
from dprotonet.errors import UserError
from dprotonet.inference.familiarity import rank_of
from dprotonet.inference.feature_spread import FeatureSpread, cross_fitted
from dprotonet.network import Network
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import load_tensors, save_tensors, tensor_digest
from dprotonet.training.views import ViewSource, chunks, load

FILE = "familiarity.safetensors"
MOST = 2000  # training images, evenly spread, that Gaussians are fitted to


_OTHER_LEVELS = "familiarity.json is of other levels; make it anew with dprotonet familiarity"


@dataclass(frozen=True)
class KnownFeatures:
    """Where the features of known images lie; its limits are exceeded by `share` of such images."""

    taken: tuple[int, ...]  # maps of the trunk
    backbone: str  # digest of the weights it belongs to
    tensors: str  # digest of `spread`
    share: float
    fitted: int  # images
    spread: FeatureSpread = field(compare=False, repr=False)
    unit: bool = False  # averages have length one; earlier versions took them as they are, and did not say

    def facts(self) -> dict[str, Any]:
        """All but the tensors."""
        names = ("backbone", "tensors", "share", "fitted", "unit")
        return {"taken": list(self.taken), **{name: getattr(self, name) for name in names}}

    def fits(self, network: Network) -> bool:
        return self.backbone == backbone_digest(network)

    def strangeness(self, averages: Tensor) -> Tensor:
        """Of images in every level (B, L), by the averages of their levels; 1 is the limit."""
        spread = self.spread.to(averages.device)
        if averages.shape[1] != sum(spread.widths):
            raise UserError(_OTHER_LEVELS)
        return spread.distances(averages) / spread.limits

    def write(self, folder: Path) -> None:
        save_tensors(folder / FILE, self.spread.state_dict())

    @classmethod
    def read(cls, folder: Path, facts: dict[str, Any]) -> "KnownFeatures":
        """Of a run folder; nothing in it is trusted."""
        unit = facts.get("unit", False)
        if type(unit) is not bool:
            raise ValueError("unit must be true or false")
        spread = spread_of(load_tensors(folder / FILE), unit=unit)
        found = cls(**{**facts, "taken": tuple(facts["taken"])}, spread=spread)
        if not all(type(number) is int and number >= 0 for number in found.taken):
            raise ValueError("taken must be numbers of maps")
        if len(found.taken) + 1 != len(spread.levels) or not 0 < found.share < 1:
            raise ValueError(f"{FILE} has other levels")
        if found.tensors != tensor_digest(spread.state_dict()):
            raise ValueError(f"{FILE} is of another measurement")
        return found


class MeasuredFeatures(NamedTuple):
    """Gaussians of known images, and distances (N, L) of some that they were not fitted to, for limits.

    `val` are those of the validation images, in their order.
    """

    taken: tuple[int, ...]
    spread: FeatureSpread
    distances: Tensor
    val: Tensor
    fitted: int

    def limited(self, network: Network, share: float) -> KnownFeatures:
        """With the limits that `share` of known images exceed."""
        spread = self.spread.limited(self.distances, share)
        return self.known(network, spread, share_told(len(self.distances), share))

    def known(self, network: Network, spread: FeatureSpread, share: float) -> KnownFeatures:
        digests = backbone_digest(network), tensor_digest(spread.state_dict())
        return KnownFeatures(self.taken, *digests, share, self.fitted, spread, spread.unit)


def share_told(images: int, share: float) -> float:
    """What share of known images really exceeds limits from so many; with few more than was asked for."""
    return 1 - rank_of(images, share) / (images + 1)


def measured_features(levels: Levels, train: Tensor, val: Tensor, *, learned: bool) -> MeasuredFeatures:
    """From the averages of training and of validation images (N, ΣC).

    Limits need images that had no part in it. Where the backbone has not `learned` from the training images
    these are validation images and, each measured without itself, training images. Where it has, training
    images are too near, and only used where there are too few others.
    """
    spread = FeatureSpread.fit(train, levels.widths)
    found = distances = spread.distances(val) if len(val) else torch.empty(0, len(levels.widths))
    if not learned or not enough(len(val)):
        distances = torch.cat([cross_fitted(train, levels.widths), distances])
    return MeasuredFeatures(levels.taken, spread, distances, found, len(train))


def enough(images: int, share: float = 0.05 / 2) -> bool:
    """Whether so many images tell what `share` of others exceed, other than all of them."""
    return (images + 1) * share >= 1


def seen_by(backbone: nn.Module, images: Tensor, known: KnownFeatures | None) -> tuple[Tensor, Tensor | None]:
    """The feature map of images and, where it is known, how strange their levels are (B, L), by one pass."""
    if known is None:
        return backbone(images), None
    assert isinstance(backbone, Backbone)
    try:
        found: Seen = LevelAverages(backbone, known.taken).seen(images)
    except UserError as error:
        raise UserError(f"{_OTHER_LEVELS} ({error})") from error
    return found.feature_map, known.strangeness(found.averages)


@torch.no_grad()
def level_averages(
    network: Network,
    views: ViewSource,
    levels: Levels,
    *,
    batch: int = 60,
    on_progress: Progress | None = None,
) -> Tensor:
    """Averages (N, ΣC) of at most `MOST` plain views, on the CPU; the network's modes stay as they were."""
    backbone = network.encoder.backbone
    assert isinstance(backbone, Backbone)
    look = LevelAverages(backbone, levels.taken)
    was_training = [(module, module.training) for module in look.modules()]
    look.eval()
    batches = chunks([(row, 0) for row in evenly(len(views))], batch)
    found = []
    for number, view in enumerate(load(views, batches, workers=0), start=1):
        found.append(look(view.inputs.to(network.head.weight.device)).cpu())
        if on_progress is not None:
            on_progress(number, len(batches))
    for module, flag in was_training:
        module.training = flag
    return torch.cat(found) if found else torch.empty(0, sum(levels.widths))


def evenly(count: int, most: int = MOST) -> Sequence[int]:
    """At most `most` of `count` images, evenly spread."""
    return range(count) if count <= most else [number * count // most for number in range(most)]


def spread_of(tensors: dict[str, Tensor], *, unit: bool) -> FeatureSpread:
    """The Gaussians in a file's tensors."""
    try:
        sizes = [tensors[f"levels.{number}.directions"].shape for number in range(len(tensors["limits"]))]
        spread = FeatureSpread.empty([(kept, width) for kept, width in sizes], unit=unit)
        spread.load_state_dict(tensors)
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"{FILE} has other tensors ({error})") from None
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ValueError(f"{FILE} has numbers that are not finite")
    return spread


def backbone_digest(network: Network) -> str:
    """Other weights before the shaping net have another digest."""
    return tensor_digest(network.encoder.backbone.state_dict())
