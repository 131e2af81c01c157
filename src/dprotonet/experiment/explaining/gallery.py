"""The images of a split worth a look, found in one pass: the most wrong, the least certain, the strangest."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest

import torch

from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.progress import Progress

_BATCH = 32


@dataclass(frozen=True)
class GalleryImage:
    """One image: what it shows, and what the model says of it."""

    index: int
    name: str
    label: int
    predicted: int
    probability: float  # of the predicted class
    distance: float | None  # from what the run knows, 1 being the limit; None where it cannot tell

    @property
    def wrong(self) -> bool:
        return self.label != self.predicted

    @property
    def strange(self) -> bool:
        return self.distance is not None and self.distance > 1


@dataclass(frozen=True)
class Gallery:
    """Three lists, what is most so first; an image may be in several."""

    images: int
    mistakes: int
    strangers: int | None  # beyond the limit; None where the run cannot tell
    wrong: tuple[GalleryImage, ...]  # the surest mistakes first
    uncertain: tuple[GalleryImage, ...]  # right or wrong, the least probable answers first
    strange: tuple[GalleryImage, ...]  # the farthest from what the run knows first


def gallery(
    model: TrainedModel, data: ImageData, *, most: int = 24, on_progress: Progress | None = None
) -> Gallery:
    """At most so many images in each list; `on_progress` hears of (images done, images in all)."""
    if not len(data):
        raise UserError("the split has no images")
    seen = list(_seen(model, data, on_progress))
    mistakes = [one for one in seen if one.wrong]
    measured = [one for one in seen if one.distance is not None]
    return Gallery(
        images=len(seen),
        mistakes=len(mistakes),
        strangers=sum(one.strange for one in measured) if measured else None,
        wrong=_first(most, mistakes, lambda one: -one.probability),
        uncertain=_first(most, seen, lambda one: one.probability),
        strange=_first(most, measured, lambda one: -(one.distance or 0.0)),
    )


def _first(
    most: int, images: Iterable[GalleryImage], key: Callable[[GalleryImage], float]
) -> tuple[GalleryImage, ...]:
    return tuple(nsmallest(most, images, key=lambda one: (key(one), one.index)))


def _seen(model: TrainedModel, data: ImageData, on_progress: Progress | None) -> Iterator[GalleryImage]:
    device = model.network.head.weight.device
    for start in range(0, len(data), _BATCH):
        indices = range(start, min(start + _BATCH, len(data)))
        samples = [data[index] for index in indices]
        inputs = model.normalise(torch.stack([sample.image for sample in samples]).to(device))
        for index, sample, answer in zip(indices, samples, model.answers_to(inputs), strict=True):
            predicted = answer.label()
            probability = float(answer.probabilities()[predicted])
            yield GalleryImage(index, sample.name, sample.label, predicted, probability, answer.distance)
        if on_progress is not None:
            on_progress(indices.stop, len(data))
