"""Which view of which image comes when: a view's key is (index, variant), variant 0 the plain image.

Order, sampling and augmentation are pure functions of (seed, epoch, index); processes take every n-th image
of each batch. So neither workers nor the number of processes change what an epoch consists of.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from dprotonet.data.transforms import View

Key = tuple[int, int]
T = TypeVar("T")


class ViewSource(Protocol):
    """A data set addressed by (index, variant): images for a whole network, feature maps for a frozen one."""

    @property
    def labels(self) -> Sequence[int]: ...
    @property
    def augmentations(self) -> int | None:
        """How many different augmented variants there are; None for as many as one likes."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, key: Key) -> View: ...


@runtime_checkable
class PlacedViews(ViewSource, Protocol):
    """Views of which it is known where their places were in the plain image."""

    def places(self, key: Key, size: tuple[int, int]) -> Tensor: ...


class PairView(NamedTuple):
    """The plain image and a view of it, (2, C, H, W), and where the view's places were in it, (h, w, 2)."""

    inputs: Tensor
    label: int
    index: int  # type: ignore[assignment]
    places: Tensor


@dataclass(frozen=True)
class Pairs:
    """Every view together with the plain image, for losses that compare the two; `size` is that of the map.

    Where the plain image takes its turn, another view stands beside it.
    """

    views: PlacedViews
    size: tuple[int, int]

    @property
    def labels(self) -> Sequence[int]:
        return self.views.labels

    @property
    def augmentations(self) -> int | None:
        return self.views.augmentations

    def __len__(self) -> int:
        return len(self.views)

    def __getitem__(self, key: Key) -> PairView:
        index, variant = key
        other = variant or 1 + index % (self.augmentations or 1)
        plain, view = self.views[index, 0], self.views[index, other]
        both = torch.stack([plain.inputs, view.inputs])
        return PairView(both, view.label, index, self.views.places((index, other), self.size))


class ProcessShare:
    """The part of the work that falls to one process of several."""

    def __init__(self, process: int = 0, processes: int = 1) -> None:
        self.process = process
        self.processes = processes

    def of(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.process :: self.processes]


def derived_seed(*numbers: int) -> int:
    """A seed that depends on all numbers, for torch."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def epoch_keys(views: ViewSource, *, epoch: int, per_image: int = 1) -> list[Key]:
    """What a training epoch (from 1) looks at: of every image so many variants, new ones each time.

    Where variants are few they come round and round, and the plain image takes its turn among them: it is
    what the network will be asked.
    """
    start = (epoch - 1) * per_image + 1
    variants = range(start, start + per_image)
    return [_key(views, index, variant) for variant in variants for index in range(len(views))]


def _key(views: ViewSource, index: int, time: int) -> Key:
    """What is seen of an image when it is seen for the `time`-th time, from 1."""
    number = views.augmentations
    return index, time if number is None else (time + index) % (1 + number)


Sampling = Callable[..., list[Key]]
"""Like `epoch_keys`: what an epoch looks at, of views, `epoch` and `per_image`."""


@dataclass(frozen=True)
class BalancedKeys:
    """Every class equally often in an epoch, which is as long as a plain one, up to a view of each class.

    Of a class the images come in shuffled rounds, and an epoch goes on in its round where the one before
    ended: images of a large class take turns, those of a small one come several times, each time as another
    view.
    """

    seed: int = 0

    def __call__(self, views: ViewSource, *, epoch: int, per_image: int = 1) -> list[Key]:
        labels = np.asarray(views.labels)
        classes = np.unique(labels)
        share = -(-len(labels) * per_image // len(classes))
        places = range((epoch - 1) * share, epoch * share)
        return [key for number in classes for key in self._of_class(views, int(number), labels, places)]

    def _of_class(self, views: ViewSource, number: int, labels: np.ndarray, places: range) -> list[Key]:
        """The views at these places of the endless row of rounds of a class."""
        own = np.flatnonzero(labels == number)
        rounds = range(places.start // len(own), (places.stop - 1) // len(own) + 1)
        orders = {time: self._order(number, time, len(own)) for time in rounds}
        found = ((place // len(own), place % len(own)) for place in places)
        return [_key(views, int(own[orders[time][turn]]), time + 1) for time, turn in found]

    def _order(self, number: int, time: int, count: int) -> list[int]:
        generator = torch.Generator().manual_seed(derived_seed(self.seed, number, time))
        return torch.randperm(count, generator=generator).tolist()


class BatchPart(NamedTuple):
    """This process's part of a batch. Weighted by it, the mean over processes is the mean over the batch."""

    keys: list[Key]
    weight: float


def epoch_parts(
    views: ViewSource,
    *,
    seed: int,
    epoch: int,
    batch: int,
    share: ProcessShare,
    per_image: int = 1,
    sampling: Sampling = epoch_keys,
) -> list[BatchPart]:
    """This process's part of every batch of a shuffled epoch.

    A tiny last batch shares evenly with the one before: BatchNorm learns nothing from a few images, and no
    batch may be larger than was asked for, as the largest decides how much memory training takes.
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, epoch))
    keys = sampling(views, epoch=epoch, per_image=per_image)
    order = torch.randperm(len(keys), generator=generator).tolist()
    whole = chunks([keys[place] for place in order], batch)
    if len(whole) > 1 and 2 * len(whole[-1]) < batch:
        rest = whole[-2] + whole[-1]
        whole[-2:] = chunks(rest, -(-len(rest) // 2))
    return [_part(together, share) for together in whole]


def _part(together: list[Key], share: ProcessShare) -> BatchPart:
    mine = list(share.of(together))
    return BatchPart(mine, len(mine) * share.processes / len(together))


def plain_batches(count: int, *, batch: int, share: ProcessShare) -> list[list[Key]]:
    """This process's part of all plain images, in order."""
    return chunks(share.of([(index, 0) for index in range(count)]), batch)


def chunks(keys: Sequence[Key], batch: int) -> list[list[Key]]:
    return [list(keys[start : start + batch]) for start in range(0, len(keys), batch)]


def load(views: ViewSource, batches: list[list[Key]], *, workers: int) -> Iterator[View]:
    """Batched views, collated; `workers` processes read ahead."""
    source: Any = views
    if not batches:
        return iter(())
    loader = DataLoader(source, batch_sampler=batches, num_workers=workers)
    return iter(loader)
