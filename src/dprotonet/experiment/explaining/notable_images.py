"""Which images of a split say most about a classifier: where it was surest, least sure, and wrong."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from dprotonet.training.evaluation import Predictions


@dataclass(frozen=True)
class NotableImages:
    """Numbers of images in their split; no image is in two of the lists."""

    sure: tuple[int, ...]  # right, the most probable first, of different classes while there are any
    unsure: tuple[int, ...]  # right or wrong, the least probable first
    mistakes: tuple[int, ...]  # wrong, the most probable first, of different mix-ups while there are any


def notable_images(
    predictions: Predictions,
    probabilities: Tensor | None = None,
    *,
    sure: int = 2,
    unsure: int = 2,
    mistakes: int = 2,
) -> NotableImages:
    """At most so many images of each kind; mistakes choose first, since they may be few.

    `probabilities` (N, C) are the softmax of the logits unless given.
    """
    shares = predictions.logits.double().softmax(1) if probabilities is None else probabilities
    probability, guess = (found.tolist() for found in shares.max(1))
    truth = predictions.labels.tolist()
    order = sorted(range(len(truth)), key=lambda index: (-probability[index], index))
    right = [index for index in order if guess[index] == truth[index]]
    wrong = [index for index in order if guess[index] != truth[index]]
    failed = _various(wrong, {index: (truth[index], guess[index]) for index in wrong})[:mistakes]
    safe = _various(right, {index: truth[index] for index in right})[:sure]
    taken = {*failed, *safe}
    doubtful = islice((index for index in reversed(order) if index not in taken), unsure)
    return NotableImages(tuple(safe), tuple(doubtful), tuple(failed))


def _various(order: Iterable[int], kind: dict[int, Hashable]) -> list[int]:
    """The first of every kind in order, then all others."""
    seen: set[Hashable] = set()
    first: list[int] = []
    others: list[int] = []
    for index in order:
        (others if kind[index] in seen else first).append(index)
        seen.add(kind[index])
    return first + others
