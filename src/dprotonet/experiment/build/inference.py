"""Prototypes and head of a config: whose prototypes are, what they look at, and how they are compared."""

from collections.abc import Callable, Mapping, Sequence

import torch

from dprotonet.config import NetworkConfig
from dprotonet.errors import UserError
from dprotonet.inference.head import Head
from dprotonet.inference.pool import FocalPrototypes, SlotHead, Slots
from dprotonet.inference.presence import ChannelMaximum, PresenceHead
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion, RegionAssignment, any_region, own_region
from dprotonet.inference.several_labels import LabelHead
from dprotonet.inference.similarity import (
    CosineSimilarity,
    LogSimilarity,
    PresentCosine,
    Projection,
    Similarity,
    ThresholdedPresence,
)


def prototype_count(config: NetworkConfig, classes: int) -> int:
    """Of a network before pruning."""
    numbers = {"pool": config.pool, "channels": config.dimension}
    return numbers.get(config.ownership, classes * config.prototypes_per_class)


def build_prototypes(
    config: NetworkConfig, classes: int, dimension: int, *, owner: Sequence[int] | None = None
) -> Prototypes:
    """The prototype layer; `owner` names the classes of stored prototypes.

    Where classes share them, they are dealt out evenly until a push knows whom they speak for.
    """
    count = prototype_count(config, classes)
    similarity = build_similarity(config)
    assignment = _assignment(config, count if owner is None else len(owner))
    if config.ownership == "class":
        prototypes = Prototypes(
            classes, config.prototypes_per_class, dimension, similarity=similarity, assignment=assignment
        )
    else:
        kind = FocalPrototypes if config.ownership == "pool" else Prototypes
        prototypes = kind(1, count, dimension, similarity=similarity, assignment=assignment)
        prototypes.prototype_class.copy_(torch.arange(count) * classes // count)
    if config.ownership == "channels":
        prototypes.vectors.data.copy_(torch.eye(dimension))
    if owner is not None:
        prototypes.replace(torch.zeros(len(owner), dimension), torch.tensor(owner, dtype=torch.long))
    return prototypes


def build_head(config: NetworkConfig, classes: int, prototypes: Prototypes, *, several: bool = False) -> Head:
    """The head; `several` where an image may have several labels."""
    count = len(prototypes.vectors)
    if config.ownership == "channels":
        return PresenceHead(count, classes)
    if config.ownership == "pool":
        slots = Slots(classes, config.prototypes_per_class, count)
        return SlotHead(slots, own=config.head_own, other=config.head_other)
    if several:
        return LabelHead(prototypes.prototype_class)
    head = Head(prototypes.prototype_class, own=config.head_own, other=config.head_other)
    if config.regions == "parts" and config.whole:
        _weigh_whole(config, prototypes, head)
    return head


@torch.no_grad()
def _weigh_whole(config: NetworkConfig, prototypes: Prototypes, head: Head) -> None:
    """What the image as a whole says counts as much as several parts."""
    assert isinstance(prototypes.assignment, PartRegion)
    head.weight[:, prototypes.assignment.part == config.parts] *= config.whole


def part_regions(config: NetworkConfig) -> int:
    """The parts and, behind them, the image as a whole."""
    return config.parts + (config.whole > 0)


def _assignment(config: NetworkConfig, prototypes: int) -> RegionAssignment:
    """Which region each of so many prototypes may look at; the parts of a stored network come with its
    weights, and so do channels, for pruning may have left any of them."""
    if config.regions == "parts":
        return PartRegion(torch.arange(prototypes) % config.prototypes_per_class % part_regions(config))
    if config.ownership == "channels":
        return ChannelMaximum(torch.arange(prototypes))
    return own_region if config.regions == "occurrence" else any_region


SIMILARITIES: Mapping[str, Callable[[NetworkConfig], Similarity]] = {
    "log": lambda config: LogSimilarity(config.epsilon),
    "cosine": lambda config: CosineSimilarity(),
    "projection": lambda config: _projection(config),
}
"""The words of --similarity, and what they stand for."""


def _projection(config: NetworkConfig) -> Projection:
    """For what the activation leaves of a region vector's length."""
    if config.activation == "unit":  # two halves of unit length; ST-ProtoPNet's cosines are never negative
        return Projection(2**0.5, positive=True)
    return Projection(config.dimension**0.5)


def build_similarity(config: NetworkConfig) -> Similarity:
    if config.similarity not in SIMILARITIES:
        raise UserError(f"unknown similarity '{config.similarity}'; known: {', '.join(SIMILARITIES)}")
    partial = config.regions == "parts" or config.ownership == "channels"  # vectors shorter than 1
    if partial and config.similarity == "cosine":
        return ThresholdedPresence(config.least_presence) if config.least_presence else PresentCosine()
    return SIMILARITIES[config.similarity](config)
