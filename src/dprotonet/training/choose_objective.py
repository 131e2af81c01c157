"""Which loss a network learns by while more than its head learns, and of which views."""

from dataclasses import dataclass
from typing import cast

from torch import nn

from dprotonet.encoder.part_maps import WithParts
from dprotonet.encoder.regions import Points
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.inference.pool import SlotHead, sharpness
from dprotonet.inference.presence import PresenceHead
from dprotonet.network import BlackBox, Network
from dprotonet.training.objective import PartAreaObjective, PlainObjective, WholeObjective
from dprotonet.training.occurrence import OccurrenceObjective
from dprotonet.training.phases import Phase, is_phase
from dprotonet.training.pool import PoolObjective
from dprotonet.training.presence import PresenceObjective, PretrainingObjective
from dprotonet.training.views import Pairs, PlacedViews, ViewSource


@dataclass(frozen=True)
class Extra:
    """What only some networks have: further losses, and how long slots take to decide."""

    occurrence: float = 0.0  # weight of XProtoNet's
    part_area: float = 1.0  # share of the image that all parts may have before it costs
    alignment: float = 0.0  # weight of PIP-Net's, of two views
    uniformity: float = 0.0  # weight of PIP-Net's, that all prototypes are used
    slot_epochs: int = 10  # ProtoPool's


def whole_objective(network: Network, loss: PrototypeLoss, extra: Extra, phase: Phase) -> nn.Module:
    """The loss of a phase in which more than the head learns."""
    if isinstance(network, BlackBox):
        return PlainObjective(network, loss)
    if isinstance(network.head, PresenceHead):
        kind = PretrainingObjective if is_phase(phase, "pretrain") else PresenceObjective
        return kind(network, loss, alignment=extra.alignment, uniformity=extra.uniformity)
    if isinstance(network.head, SlotHead):
        return PoolObjective(network, loss)
    if extra.occurrence:
        return OccurrenceObjective(network, loss, weight=extra.occurrence)
    if extra.part_area < 1 and isinstance(network.encoder.shaping, WithParts):
        return PartAreaObjective(network, loss, most=extra.part_area)
    return WholeObjective(network, loss)


def served(views: ViewSource, network: Network) -> ViewSource:
    """Training views as the loss wants them: PIP-Net's beside the plain image."""
    if isinstance(network, BlackBox) or not isinstance(network.head, PresenceHead):
        return views
    assert isinstance(network.encoder.regions, Points)
    assert isinstance(views, PlacedViews)
    return cast(ViewSource, Pairs(views, network.encoder.regions.size))


def set_epoch(objective: nn.Module, extra: Extra, *, epoch: int, share: float) -> None:
    """What changes besides rates before an epoch, after which `share` of its phase is over."""
    if isinstance(objective, PoolObjective):
        objective.head.slots.sharpness = sharpness(epoch, extra.slot_epochs)
    if isinstance(objective, PretrainingObjective):
        objective.share = share
