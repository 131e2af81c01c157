"""How much of a node is left when part of the image is hidden, on a scale that suits every node.

1 is what should be kept, 0 is what a blank image gives. A single number counts by its distance from blank to
wanted, so that more than wanted is more than 1; a vector by its squared distance from the wanted one. Of a
node that `rises`, such as a class or a difference of logits, more is always more: its image may have less
than a blank one, -1. Where `differs` is true as well, it may have as much and still parts for and against it.
"""

import logging
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dprotonet.interpretation.masking_task import MaskingTask

logger = logging.getLogger(__name__)

_NOTHING = 1e-6  # a smaller difference between image and blank, relative to the activations, is rounding
_SMALLEST = 1e-18  # difference whose square is still a float32


@dataclass(frozen=True)
class KeptActivation:
    """Activations (B, K) to shares (B,); `wanted`, `blank` (N, K), `scale` (N,), 0 where they agree."""

    wanted: Tensor
    blank: Tensor
    scale: Tensor
    against: Tensor  # (N,): has a direction, and less of it on the image than on a blank one

    @classmethod
    def of(cls, task: MaskingTask) -> "KeptActivation":
        """Measured on the images and on blank ones."""
        wanted, blank = task.wanted, task.blank
        gap = wanted - blank
        size = torch.maximum(wanted.abs().amax(dim=1), blank.abs().amax(dim=1))
        dead = gap.abs().amax(dim=1) <= (_NOTHING * size).clamp_min(_SMALLEST)
        scale = gap.squeeze(1) if gap.shape[1] == 1 else gap.square().sum(dim=1)
        rises, differs = (getattr(task.node, name, False) for name in ("rises", "differs"))
        against = (scale < 0) & ~dead & rises
        inverse = 1 / scale.where(~dead, torch.ones_like(scale))
        inverse = inverse if differs else inverse.where(~dead, 0.0)
        return cls(wanted, blank, torch.where(against, -inverse, inverse), against)

    @classmethod
    def unmeasured(cls, task: MaskingTask) -> "KeptActivation":
        """A single number as it is, for a node that rises: neither 0 nor 1 means anything."""
        none = task.images.new_zeros(task.count, 1)
        return cls(none, none, torch.ones_like(none[:, 0]), torch.zeros_like(none[:, 0], dtype=torch.bool))

    def warn(self, task: MaskingTask) -> None:
        """Say which images the node does not depend on."""
        for row in (self.scale == 0).nonzero().flatten().tolist():
            logger.warning(
                "%s is as active on a blank image as on image %d: there is nothing to explain",
                task.node.name(row),
                row,
            )

    def __call__(self, activation: Tensor, rows: Tensor) -> Tensor:
        if activation.shape[1] == 1:
            return (activation - self.blank[rows]).squeeze(1) * self.scale[rows]
        missing = (activation - self.wanted[rows]).square().sum(dim=1)
        return (1 - missing * self.scale[rows]).where(self.scale[rows] > 0, 0.0)


class NodeScore:
    """A number as it is; a vector as the share of it that is kept, for two passes more."""

    def __init__(self, task: MaskingTask) -> None:
        self._task = task

    @cached_property
    def _kept(self) -> KeptActivation:
        return KeptActivation.of(self._task)

    def __call__(self, activation: Tensor, rows: Tensor) -> Tensor:
        return activation.squeeze(1) if activation.shape[1] == 1 else self._kept(activation, rows)
