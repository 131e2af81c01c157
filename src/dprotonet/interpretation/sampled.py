"""MDM without gradients: masks of the same sizes, fitted from sampled maskings.

For an ONNX session, a remote service, any function of images that can only be asked. Random coarse masks are
laid over the image; how the activation follows what they let through is fitted by ridge regression, for each
mask size by itself, and the fitted weights are the masks. All samples serve all sizes.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.kept_activation import KeptActivation
from dprotonet.interpretation.masking_task import MaskingTask, Step
from dprotonet.interpretation.masks import Extent, MaskStack, Size, check_sizes, resized, windows
from dprotonet.ops import unit_range, upsample


@dataclass(frozen=True)
class SampledMasks:
    """The `sampled` preset: `samples` forward passes per image and no backward pass.

    `grid` is the coarseness of the sampled masks, `keep` the probability that a cell is shown, `ridge` the
    strength of the penalty, in units of the samples.
    """

    sizes: tuple[Size, ...] = tuple(range(6, 16))
    samples: int = 500
    grid: int = 7
    keep: float = 0.5
    ridge: float = 0.05
    block: int = 50
    seed: int = 0
    probability: bool = True

    def __post_init__(self) -> None:
        check_sizes(self.sizes, self)
        if self.samples < 2 or self.block < 1 or self.grid < 2 or not 0 < self.keep < 1 or self.ridge <= 0:
            raise UserError(
                f"{self}: samples and grid >= 2, block >= 1, 0 < keep < 1, ridge > 0 are possible"
            )

    def steps(self, task: MaskingTask) -> Generator[Step]:
        share = KeptActivation.of(task)
        share.warn(task)
        generator = torch.Generator().manual_seed(self.seed)
        shown, kept = torch.empty(0), torch.empty(0)
        total = math.ceil(self.samples / self.block)
        for number in range(1, total + 1):
            count = min(self.block, self.samples - len(shown))
            maskings = self._maskings(count, task.size, generator).to(task.images.device)
            answers = task.answers(maskings, share)
            shown = maskings if number == 1 else torch.cat([shown, maskings])
            kept = answers if number == 1 else torch.cat([kept, answers])
            masks = self._fitted(shown, kept)
            raw = MaskStack(masks).enlarged(task.size).detach().sum(dim=0)
            yield Step(number, total, answers.var(dim=0, correction=0), masks, raw)

    def heatmap(self, task: MaskingTask, raw: Tensor) -> Tensor:
        return unit_range(raw, axes=len(task.size))

    def above(self, raw: Tensor) -> Tensor | None:
        """None: the map is a ranking and has no γ."""
        return None

    def _maskings(self, count: int, size: Extent, generator: torch.Generator) -> Tensor:
        """Random coarse masks (count, H, W), shifted by a random part of a cell so that no edge repeats."""
        grid = [min(self.grid, side) if axis < len(size) - 2 else self.grid for axis, side in enumerate(size)]
        cells = (torch.rand(count, *(n + 1 for n in grid), generator=generator) < self.keep).float()
        cell = [math.ceil(side / n) for side, n in zip(size, grid, strict=True)]
        large = upsample(cells, tuple(step * (n + 1) for step, n in zip(cell, grid, strict=True)))
        shifts = torch.stack([torch.randint(step, (count,), generator=generator) for step in cell], dim=1)
        return windows(large, shifts, size)

    def _fitted(self, shown: Tensor, kept: Tensor) -> dict[Size, Tensor]:
        """Ridge weights of the places, scaled to [0, 1], by size: (N, s, s)."""
        axes = shown.ndim - 1
        weights = {size: self._weights(resized(shown, size), kept) for size in self.sizes}
        return {size: unit_range(some, axes=axes) for size, some in weights.items()}

    def _weights(self, seen: Tensor, kept: Tensor) -> Tensor:
        """Solved in double precision, and on the CPU: not every device has that (MPS has none)."""
        samples, *shape = seen.shape
        places = (seen.flatten(1) - seen.flatten(1).mean(dim=0)).cpu().double()
        values = (kept - kept.mean(dim=0)).cpu().double()
        ridge = self.ridge * torch.eye(samples, dtype=places.dtype)
        dual = torch.linalg.solve(places @ places.T / samples + ridge, values)  # (samples, N)
        return (places.T @ dual).T.reshape(-1, *shape).float().to(seen.device)
