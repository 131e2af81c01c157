"""The stages of training as data (Algorithm 2 and Section 4.3).

A schedule is a flat tuple of phases and pushes. It ends with a push and its last-layer phase, so that every
model that is kept has prototypes that are real region vectors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeGuard


@dataclass(frozen=True)
class LearningRates:
    """Of the four parts (Section 4.3) and of part maps; at 0 it is frozen, BatchNorm statistics included."""

    backbone: float = 1e-4
    shaping: float = 3e-3
    prototypes: float = 3e-3
    head: float = 1e-4
    part_maps: float = 0.0

    def of(self, part: str) -> float:
        rate: float = getattr(self, part)
        return rate


@dataclass(frozen=True)
class WeightDecay:
    """Of the four parts, as the L2 term of Adam.

    Unstated: the paper names none. ProtoPNet has 1e-3 on backbone and shaping; for the shaping net, new and
    wide, we chose more on validation data.
    """

    backbone: float = 1e-3
    shaping: float = 3e-2
    prototypes: float = 0.0
    head: float = 0.0
    part_maps: float = 0.0

    def of(self, part: str) -> float:
        strength: float = getattr(self, part)
        return strength


@dataclass(frozen=True)
class Phase:
    """Some epochs with fixed learning rates."""

    name: str
    epochs: int
    learning_rates: LearningRates


@dataclass(frozen=True)
class Push:
    """The moment when prototypes become region vectors of training images."""


@dataclass(frozen=True)
class Judgement:
    """The moment when a network without prototypes is judged, and kept if it is the best so far."""


Stage = Phase | Push | Judgement


def half_cosine(epoch: int, epochs: int) -> float:
    """What share of its learning rate a part has in an epoch (from 1) of so many: from 1 smoothly to 0.

    Unstated: the paper names no decay of the learning rates; ProtoPNet divides them by ten every five epochs.
    Chosen together with the weight decay, on one small validation split (docs/masks.md).
    """
    return 0.5 * (1 + math.cos(math.pi * (epoch - 1) / epochs))


def constant(epoch: int, epochs: int) -> float:
    """The full learning rate throughout."""
    return 1.0


@dataclass(frozen=True)
class StepDecay:
    """ProtoPNet's StepLR(5, 0.1): full rates while warm, then a tenth from every fifth joint epoch on.

    Its code steps the scheduler before an epoch, so the first drop comes with the fifth joint epoch already.
    """

    warm: int = 5
    every: int = 5
    factor: float = 0.1

    def __call__(self, epoch: int, epochs: int) -> float:
        return self.factor ** (max(epoch - self.warm, 0) // self.every)


HeadLearns = Literal["always", "last", "never"]
PrototypesLearn = Literal["always", "never"]


def plan(
    rates: LearningRates,
    *,
    epochs: int = 30,
    warm: int = 5,
    push_every: int = 10,
    last_layer: int = 20,
    head_learns: HeadLearns = "always",
    prototypes_learn: PrototypesLearn = "always",
) -> tuple[Stage, ...]:
    """Warm epochs, then joint ones; after every `push_every` a push and `last_layer` epochs of the head.

    `epochs` counts warm and joint epochs and is rounded up to end at a push. Following Algorithm 2 the head
    learns in every stage; ProtoPNet's code freezes it outside the last-layer stage (`last`), NP-ProtoPNet
    throughout (`never`, which leaves no last-layer stage). Where prototypes never learn, a push comes first.

    Unstated: N of Algorithm 2, the length of the last-layer stage; 20 epochs, as ProtoPNet.
    Unstated: when to stop. We end after `epochs`, or earlier by patience on validation accuracy after a push.
    """
    if min(epochs, push_every) < 1 or min(warm, last_layer) < 0:
        raise ValueError("epochs and push_every must be positive, the others not negative")
    together = rates if head_learns == "always" else replace(rates, head=0.0)
    head_only = LearningRates(backbone=0.0, shaping=0.0, prototypes=0.0, head=rates.head)
    pushed: list[Stage] = [Push(), Phase("last", last_layer if head_learns != "never" else 0, head_only)]
    stages: list[Stage] = []
    if prototypes_learn == "never":
        together, stages = replace(together, prototypes=0.0), [*pushed]
    for start in range(0, max(epochs, warm), push_every):
        warm_here = min(max(warm - start, 0), push_every)
        stages += [
            Phase("warm", warm_here, replace(together, backbone=0.0)),
            Phase("joint", push_every - warm_here, together),
            *pushed,
        ]
    return tuple(stage for stage in stages if not isinstance(stage, Phase) or stage.epochs)


def planned_epochs(stages: Sequence[Stage]) -> int:
    """Epochs in all; those of the last layer do not count."""
    return sum(stage.epochs for stage in stages if isinstance(stage, Phase) and stage.name != "last")


def plan_without_pushes(
    rates: LearningRates, *, epochs: int = 30, warm: int = 5, judge_every: int = 10
) -> tuple[Stage, ...]:
    """The same epochs for a network without prototypes, judged where the others are pushed."""
    stages = plan(rates, epochs=epochs, warm=warm, push_every=judge_every, last_layer=0)
    return tuple(Judgement() if isinstance(stage, Push) else stage for stage in stages)


def plan_presence(
    rates: LearningRates, *, pretrain: int = 10, epochs: int = 30, warm: int = 3, locate_every: int = 10
) -> tuple[Stage, ...]:
    """PIP-Net's: prototypes without classes, `warm` epochs of the head alone, then all together.

    Its prototypes are channels, which no push replaces; here it finds where in training images they are.
    Unstated: the warm epochs; its code has three.
    """
    fixed = replace(rates, prototypes=0.0)
    stages = plan(fixed, epochs=epochs, warm=warm, push_every=locate_every, last_layer=0)
    head_only = LearningRates(backbone=0.0, shaping=0.0, prototypes=0.0, head=rates.head)
    first = [Phase("pretrain", pretrain, replace(fixed, head=0.0))] if pretrain else []
    return (*first, *(replace(s, learning_rates=head_only) if is_phase(s, "warm") else s for s in stages))


def is_phase(stage: Stage | None, name: str) -> TypeGuard[Phase]:
    """Whether a stage is the phase of this name."""
    return isinstance(stage, Phase) and stage.name == name


def pretraining(stages: Sequence[Stage]) -> int:
    """Epochs before classes are looked at."""
    return sum(stage.epochs for stage in stages if is_phase(stage, "pretrain"))
