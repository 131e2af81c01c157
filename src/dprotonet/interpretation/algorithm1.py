"""MDM as the paper has it: every mask size learned by itself, by keeping the activation (Algorithm 1).

All sizes of all images go through the network in one batch; since Adam treats every number by itself, the
result is that of learning one size after the other.
"""

import logging
import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.kept_activation import KeptActivation
from dprotonet.interpretation.masking_task import MaskingTask, Step
from dprotonet.interpretation.masks import MaskStack, Size, check_sizes, spread
from dprotonet.ops import unit_range

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Algorithm1:
    """The `paper` preset: Eqs. (14)–(17), lines 1–19 of Algorithm 1.

    What is minimised is `reference` · s / s(blank) + η · mean |d|, where s is the squared distance of Eq. (1)
    from the activation to be kept, and s(blank) that of an image without content. With η = 10 and a reference
    of 1000 it costs a hundredth of what a blank image costs to let all of the image through.

    Unstated: optimiser and rate. Adam at 0.01, the rate at which 800 steps neither stop short nor jitter.
    Deviation: the paper's η = 10 is absolute, so what it means depends on how long a network's region vectors
    are; with ours hardly a pixel stays above γ. Here η is relative to what a blank image gives, so that the
    same number means the same on every network; the reference was chosen on training images of the built-in
    birds. `reference=None` is the paper's own scale, the distance as it is.
    Unstated: whether a class is watched at its logit or its probability. At the logit: a probability near 1
    hardly moves.
    Deviation: γ = 3 presumes ten masks, so it is kept as a share of their number, 0.3.
    """

    sizes: tuple[Size, ...] = tuple(range(6, 16))
    iterations: int = 800
    start: float = 0.5  # τ
    sparsity: float = 10.0  # η
    reference: float | None = 1000.0  # what the distance of a blank image counts; None for as much as it is
    threshold: float = 0.3  # γ as a share of the number of masks
    rate: float = 0.01
    probability: bool = False  # watch a class at its logit

    def __post_init__(self) -> None:
        check_sizes(self.sizes, self)
        if self.iterations < 1 or self.rate <= 0 or not 0 <= self.start <= 1:
            raise UserError(f"{self}: iterations >= 1, rate > 0 and 0 <= start <= 1 are possible")
        if self.reference is not None and not 0 < self.reference < math.inf:
            raise UserError(f"{self}: reference > 0, or None for the paper's own scale, is possible")

    @property
    def passes(self) -> int:
        """Forward and backward passes of masked images, each."""
        return self.iterations * len(self.sizes)

    def steps(self, task: MaskingTask) -> Generator[Step]:
        stack = MaskStack.constant(self.sizes, task.size, task.images, self.start)
        adam = torch.optim.Adam(stack.parameters, lr=self.rate)
        worth = self._worth(task)
        for number in range(1, self.iterations + 1):
            loss = self._descend(task, stack, adam, worth)
            yield Step(number, self.iterations, loss, stack.detached(), self._summed(task, stack))

    def _descend(
        self, task: MaskingTask, stack: MaskStack, adam: torch.optim.Optimizer, worth: Tensor
    ) -> Tensor:
        """One step of all masks; the loss of each image, summed over sizes."""

        def consistency(masks: Tensor, rows: Tensor) -> Tensor:
            masked = masks.unsqueeze(1) * task.images[rows]
            return (task.activation(masked, rows) - task.wanted[rows]).square().sum(dim=1)

        adam.zero_grad()
        enlarged, area = stack.enlarged(task.size), stack.area()
        rows = task.rows.repeat(len(self.sizes))
        gap, gradient = task.gradient(enlarged.flatten(0, 1), rows, consistency, each=1)
        # Here, for a network in half precision would overflow.
        gradient = gradient * spread(worth[rows], gradient)
        penalty = self.sparsity * area
        torch.autograd.backward([enlarged, penalty], [gradient.view_as(enlarged), torch.ones_like(penalty)])
        adam.step()
        stack.clamp()
        return (worth * gap.view_as(area) + penalty.detach()).sum(dim=0)

    def _worth(self, task: MaskingTask) -> Tensor:
        """What a unit of each image's distance counts, (N,).

        0 where a blank image is as active as the image: there is nothing to keep, so the masks close, the map
        is empty, and the log says why.
        """
        if self.reference is None:
            return torch.ones_like(task.wanted[:, 0])
        share = KeptActivation.of(task)
        share.warn(task)
        for row in share.against.nonzero().flatten().tolist():
            logger.warning(
                "the %s is lower on image %d than on a blank image, and preset 'paper' keeps it so: its map "
                "shows what holds it down; 'fast', 'best' and 'sampled' show what speaks for it",
                task.node.name(row),
                row,
            )
        scale = share.scale.square() if task.wanted.shape[1] == 1 else share.scale
        return self.reference * scale

    def _summed(self, task: MaskingTask, stack: MaskStack) -> Tensor:
        """The summed map of Eqs. (16) and (17) before the threshold, (N, H, W)."""
        return stack.enlarged(task.size).detach().sum(dim=0)

    def above(self, raw: Tensor) -> Tensor:
        """M^b of Algorithm 1, line 17: {raw >= γ}."""
        return raw >= self.threshold * len(self.sizes)

    def heatmap(self, task: MaskingTask, raw: Tensor) -> Tensor:
        """Eqs. (16) and (17): N({raw >= γ} raw)."""
        return unit_range(torch.where(self.above(raw), raw, 0.0), axes=len(task.size))
