"""A detection node for functions that answer many questions at once, such as an exported model.

Such a function gives a row of numbers per image; every explained row watches one of them. Where one image is
explained in several respects its maskings are the same for all of them, and are asked once.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError


class ColumnNode:
    """NumPy images (B, C, H, W) to activations (B, K); explained row n watches column `columns[n]`.

    It has no gradient: for the `sampled` preset.
    """

    model: nn.Module | None = None

    def __init__(
        self, function: Callable[[np.ndarray], np.ndarray], columns: Sequence[int], *, names: Sequence[str]
    ) -> None:
        self.function, self.columns, self.names = function, torch.as_tensor(columns), list(names)

    def name(self, row: int) -> str:
        return self.names[row]

    def check(self, count: int) -> None:
        if len(self.columns) != count or len(self.names) != count:
            raise UserError(f"{len(self.columns)} columns for {count} images; give exactly one per image")

    def target(self, rows: Tensor) -> Tensor | None:
        """What the image itself activates."""
        return None

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        return self(images, rows).squeeze(1)

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        first = _first_of_equals(images)
        answers = np.asarray(self.function(images[first].detach().cpu().numpy()), dtype=np.float32)
        if answers.ndim != 2 or len(answers) != int(first.sum()):
            raise UserError(f"the function gave {answers.shape} for {int(first.sum())} images, not (B, K)")
        all_rows = torch.from_numpy(answers)[first.cumsum(0) - 1]
        return all_rows.gather(1, self.columns[rows.cpu()].unsqueeze(1)).to(images.device)


def _first_of_equals(images: Tensor) -> Tensor:
    """Which images (B, …) differ from the one before them, (B,) on the CPU."""
    differs = [not torch.equal(*pair) for pair in zip(images[1:], images[:-1], strict=True)]
    return torch.tensor([True, *differs])
