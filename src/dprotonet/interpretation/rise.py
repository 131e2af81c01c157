"""RISE (Petsiuk et al., 2018): random masks, each weighed by how active the node is under it, summed.

A network that can only be asked is enough. Coarse random grids are enlarged, shifted by a part of a cell and
laid over the image; what is shown whenever the node is active becomes hot. A rival of MDM, and a dear one: a
forward pass for every mask and image. The noise of the map falls with the root of their number.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.explainer import Explainer, Question, maps_explained
from dprotonet.interpretation.kept_activation import NodeScore
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.masks import windows
from dprotonet.interpretation.outputs import GivenTask, Model
from dprotonet.interpretation.returned import OutputName
from dprotonet.ops import unit_range, upsample

_BLOCK_ELEMENTS = 4_000_000  # of the masks that exist at a time: 16 MB
_ROUNDING = 1e-6  # scores that differ less, relative to their size, differ by rounding only


class Rise(Explainer):
    """Explains any node by `samples` forward passes per image, and none backward.

    `grid` × `grid` cells are shown with probability `keep` each. The paper takes 4,000 masks (VGG16) or 8,000
    (ResNet50) of 7 × 7 cells at 0.5, its code 6,000 of 8 × 8 at 0.1. All images of a call see the same masks.
    """

    def __init__(  # noqa: PLR0913 - which masks are drawn, and what every explainer takes
        self,
        model: Model | None = None,
        *,
        samples: int = 1000,
        grid: int = 8,
        keep: float = 0.5,
        seed: int = 0,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(model, classes=classes, task=task, output=output, batch=internal_batch_size)
        if samples < 1 or grid < 2 or not 0 < keep < 1:
            raise UserError(
                f"RISE with {samples} samples, grid {grid}, keep {keep}: "
                "samples >= 1, grid >= 2 and 0 < keep < 1 are possible"
            )
        self.samples, self.grid, self.keep, self.seed = samples, grid, keep, seed

    @property
    def probability(self) -> bool:
        return True

    def explained(self, question: Question) -> list[Explanation]:
        task = question.task()
        with borrowed(task.node.model), torch.inference_mode(False), torch.no_grad():
            raw, steady = self._raw(task)
            heatmaps = unit_range(raw).where(~steady[:, None, None], 0.0)
        facts = {"preset": "rise", "settings": self._settings()}
        return maps_explained(question, raw, passes=task.passes, facts=facts, heatmaps=heatmaps)

    def _raw(self, task: MaskingTask) -> tuple[Tensor, Tensor]:
        """Σ score · mask / (samples · keep), (N, H, W), and which images are alike under all masks, (N,)."""
        score, scores = NodeScore(task), []
        # In double: a map's differences are small beside its mean, and must not depend on the batch. On the
        # CPU, where the masks are drawn: not every device has double precision (MPS has none).
        total = torch.zeros(task.count, task.size[0] * task.size[1], dtype=torch.float64)
        for masks in random_masks(self.samples, task.size, grid=self.grid, keep=self.keep, seed=self.seed):
            scores.append(task.answers(masks.to(task.images.device), score))
            total += scores[-1].cpu().double().T @ masks.flatten(1).double()
        raw = (total / (self.samples * self.keep)).float().unflatten(1, task.size)
        return raw.to(task.images.device), _steady(torch.cat(scores))

    def _settings(self) -> dict[str, int | float]:
        return {"samples": self.samples, "grid": self.grid, "keep": self.keep, "seed": self.seed}


def random_masks(count: int, size: tuple[int, ...], *, grid: int, keep: float, seed: int) -> Iterator[Tensor]:
    """`count` masks in [0, 1], in blocks (M, H, W); as in RISE's code, grids are stretched by one cell."""
    generator = torch.Generator().manual_seed(seed)
    cells = (torch.rand(count, grid, grid, generator=generator) < keep).float()
    cell = [math.ceil(side / grid) for side in size]
    shifts = torch.stack([torch.randint(step, (count,), generator=generator) for step in cell], dim=1)
    block = max(1, _BLOCK_ELEMENTS // (size[0] * size[1]))
    for some, corners in zip(cells.split(block), shifts.split(block), strict=True):
        yield windows(upsample(some, ((grid + 1) * cell[0], (grid + 1) * cell[1])), corners, size)


def _steady(scores: Tensor) -> Tensor:
    """Which images have one score under all masks; scores (M, N) to (N,)."""
    low, high = scores.amin(dim=0), scores.amax(dim=0)
    return high - low <= _ROUNDING * torch.maximum(low.abs(), high.abs())
