"""Means over many batches, and over many processes, without knowing that there are processes.

A metric is a pure function with a value per image; a meter only remembers. Where several processes measure,
each sends its `state`, a small float64 or int64 tensor on the CPU, in whatever way it likes, and whoever
gathers them merges all of them into a fresh meter:

    total = Meter()
    for state in gathered: total.merge(state)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.metrics.classification import confusion_matrix


@dataclass(frozen=True)
class Average:
    """The mean of `count` values, NaN if there is none, and how many undefined ones were left out."""

    mean: float
    count: int
    left_out: int


class Meter:
    """The mean of values per image, of which undefined ones (NaN) are counted but take no part.

    Sums are float64: single precision values of like size add up exactly, however they are shared out.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._state = torch.zeros(3, dtype=torch.float64)  # sum, count, left out

    def update(self, values: Tensor) -> None:
        """Add values (N,)."""
        if values.ndim != 1:
            raise ValueError(f"values have shape {tuple(values.shape)}; they must be (N,), one an image")
        known = values[~values.isnan()]
        added = (known.sum(dtype=torch.float64).item(), len(known), len(values) - len(known))
        self._state += torch.tensor(added, dtype=torch.float64)

    def compute(self) -> Average:
        total, count, left_out = self._state.tolist()
        return Average(total / count if count else torch.nan, int(count), int(left_out))

    def state(self) -> Tensor:
        """Everything remembered, (3,) in float64, to be merged elsewhere."""
        return self._state.clone()

    def merge(self, state: Tensor) -> None:
        """Remember what another meter has seen, too."""
        self._state += _fitting(state, self._state)


class ConfusionMeter:
    """The confusion matrix (C, C) of many batches; its verbs are those of `Meter`."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.reset()

    def reset(self) -> None:
        self._state = torch.zeros(self.classes, self.classes, dtype=torch.int64)

    def update(self, labels: Tensor, predictions: Tensor) -> None:
        """Add labels and predictions (N,)."""
        self._state += confusion_matrix(labels, predictions, self.classes).cpu()

    def compute(self) -> Tensor:
        return self.state()

    def state(self) -> Tensor:
        """Everything remembered, (C, C) in int64, to be merged elsewhere."""
        return self._state.clone()

    def merge(self, state: Tensor) -> None:
        """Remember what another meter has seen, too."""
        self._state += _fitting(state, self._state)


def _fitting(state: Tensor, own: Tensor) -> Tensor:
    """The state on the CPU; one of another shape would broadcast and count wrongly."""
    if state.shape != own.shape or state.dtype != own.dtype:
        found, wanted = (f"{tuple(item.shape)} {item.dtype}" for item in (state, own))
        raise ValueError(f"the state is {found}; one of this meter's kind is {wanted}")
    return state.cpu()
