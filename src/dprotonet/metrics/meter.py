"""Means over many batches, and over many processes, without knowing that there are processes.

A metric is a pure function; a meter only remembers: means of a value per image (`Meter`) or of a whole curve
(`CurveMeter`), the confusion matrix, from which accuracies follow (`ConfusionMeter`), and all scores, which
AUROC needs (`AurocMeter`). Where several processes measure, each sends its `state`, a float64 or int64 tensor
on the CPU, in whatever way it likes, and whoever gathers them merges all of them into a fresh meter:

    total = Meter()
    for state in gathered: total.merge(state)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.metrics.classification import auroc, confusion_matrix
from dprotonet.metrics.guards import scores_of_two_kinds


@dataclass(frozen=True)
class Average:
    """The mean of `count` values, NaN if there is none, and how many undefined ones were left out."""

    mean: float
    count: int
    left_out: int


@dataclass(frozen=True, eq=False)
class AverageCurve:
    """The mean (S + 1,) of `count` curves, NaN if there is none, and how many were left out."""

    mean: Tensor
    count: int
    left_out: int


class _Sum:
    """A meter whose memory is one tensor of sums."""

    def __init__(self, *shape: int, dtype: torch.dtype) -> None:
        self._state = torch.zeros(shape, dtype=dtype)

    def reset(self) -> None:
        self._state.zero_()

    def state(self) -> Tensor:
        """Everything remembered, to be merged elsewhere."""
        return self._state.clone()

    def merge(self, state: Tensor) -> None:
        """Remember what another meter has seen, too."""
        self._state += _fitting(state, self._state)


class Meter(_Sum):
    """The mean of values per image, of which undefined ones (NaN) are counted but take no part.

    Sums are float64: single precision values of like size add up exactly, however they are shared out.
    """

    def __init__(self) -> None:
        super().__init__(3, dtype=torch.float64)  # sum, count, left out

    def update(self, values: Tensor) -> None:
        """Add values (N,)."""
        if values.ndim != 1:
            raise ValueError(f"values have shape {tuple(values.shape)}; they must be (N,), one an image")
        self._state += _summed(values.unsqueeze(1))

    def compute(self) -> Average:
        total, count, left_out = self._state.tolist()
        return Average(total / count if count else torch.nan, int(count), int(left_out))


class CurveMeter(_Sum):
    """The mean of curves of `points` points, as of deletion and insertion; its verbs are those of `Meter`.

    A curve that is undefined (NaN) anywhere is left out as a whole: every point is a mean of the same images.
    """

    def __init__(self, points: int) -> None:
        super().__init__(points + 2, dtype=torch.float64)  # sums, count, left out
        self.points = points

    def update(self, curves: Tensor) -> None:
        """Add curves (N, points)."""
        if curves.ndim != 2 or curves.shape[1] != self.points:
            raise ValueError(f"curves have shape {tuple(curves.shape)}; they must be (N, {self.points})")
        self._state += _summed(curves)

    def compute(self) -> AverageCurve:
        count, left_out = self._state[-2:].int().tolist()
        return AverageCurve(self._state[:-2] / self._state[-2], count, left_out)


class ConfusionMeter(_Sum):
    """The confusion matrix (C, C) of many batches; its verbs are those of `Meter`."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes, classes, dtype=torch.int64)
        self.classes = classes

    def update(self, labels: Tensor, predictions: Tensor) -> None:
        """Add labels and predictions (N,)."""
        self._state += confusion_matrix(labels, predictions, self.classes).cpu()

    def compute(self) -> Tensor:
        return self.state()


class AurocMeter:
    """AUROC of many batches, exact: all scores are kept; its verbs are those of `Meter`.

    States of processes that saw different numbers of images differ in length: gather them as objects.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._pairs = [torch.zeros(0, 2, dtype=torch.float64)]  # score, and 1 for a positive

    def update(self, scores: Tensor, positive: Tensor) -> None:
        """Add scores (N,) and which are of positives (N,), of bool or the integers 0 and 1."""
        self._pairs.append(torch.stack(scores_of_two_kinds(scores, positive), dim=1))

    def compute(self) -> float:
        """NaN if one kind is missing."""
        scores, positive = self.state().unbind(dim=1)
        return auroc(scores, positive.bool())

    def state(self) -> Tensor:
        """Everything remembered, (N, 2) in float64, to be merged elsewhere."""
        return torch.cat(self._pairs)

    def merge(self, state: Tensor) -> None:
        """Remember what another meter has seen, too."""
        rows = state.shape[0] if state.ndim else 0
        self._pairs.append(_fitting(state, torch.empty(rows, 2, dtype=torch.float64)).clone())


def _summed(rows: Tensor) -> Tensor:
    """Sums of the rows (N, K) without NaN, their number, and that of the others, (K + 2,) in float64.

    On the CPU: not every device has double precision.
    """
    values = rows.detach().cpu()
    known = values[~values.isnan().any(dim=1)]
    counts = torch.tensor([len(known), len(values) - len(known)], dtype=torch.float64)
    return torch.cat([known.sum(dim=0, dtype=torch.float64), counts])


def _fitting(state: Tensor, own: Tensor) -> Tensor:
    """The state on the CPU; one of another shape would broadcast and count wrongly."""
    if state.shape != own.shape or state.dtype != own.dtype:
        found, wanted = (f"{tuple(item.shape)} {item.dtype}" for item in (state, own))
        raise ValueError(f"the state is {found}; one of this meter's kind is {wanted}")
    return state.cpu()
