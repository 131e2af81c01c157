"""Which view of which image comes when: a view's key is (index, variant), variant 0 the plain image.

Order, sampling and augmentation are pure functions of (seed, epoch, index); processes take every n-th image
of each batch. So neither workers nor the number of processes change what an epoch consists of.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from dprotonet.data.transforms import View

Key = tuple[int, int]
T = TypeVar("T")


class Keys(Sequence[Key]):
    """Keys as an array (K, 2), 8 bytes each; a list of so many tuples takes 15 times as much."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers = numbers

    @classmethod
    def of(cls, index: Any, variant: Any) -> "Keys":
        """From arrays, or a single number, of either."""
        pair = np.broadcast_arrays(np.asarray(index, np.int32), np.asarray(variant, np.int32))
        return cls(np.stack(pair, axis=-1).reshape(-1, 2))

    @classmethod
    def plain(cls, count: int) -> "Keys":
        """The plain image of each."""
        return cls.of(np.arange(count), 0)

    @classmethod
    def each(cls, index: Sequence[int] | range, variants: int) -> "Keys":
        """The first `variants` of every image, image by image."""
        return cls.of(np.asarray(index, np.int32)[:, None], np.arange(variants))

    def take(self, order: Any) -> "Keys":
        """Those at the places `order`."""
        return Keys(self._numbers[np.asarray(order)])

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> Key: ...
    @overload
    def __getitem__(self, place: slice) -> "Keys": ...
    def __getitem__(self, place: int | slice) -> "Key | Keys":
        if isinstance(place, slice):
            return Keys(self._numbers[place])
        index, variant = self._numbers[place].tolist()
        return index, variant

    def __iter__(self) -> Iterator[Key]:
        return (self[place] for place in range(len(self)))


class Made(Sequence[T], Generic[T]):
    """A list whose items are made when they are asked for, from their numbers."""

    def __init__(self, make: Callable[[int], T], numbers: range) -> None:
        self._make, self._numbers = make, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> "Made[T]": ...
    def __getitem__(self, place: int | slice) -> "T | Made[T]":
        found = self._numbers[place]
        return Made(self._make, found) if isinstance(found, range) else self._make(found)


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


def label_tensor(labels: Any) -> Tensor:
    """Labels of images as one tensor: numbers of classes (N,), or where there are several rows (N, L)."""
    if isinstance(labels, Tensor):
        return labels
    rows = len(labels) > 0 and isinstance(labels[0], Tensor)
    return torch.stack(tuple(labels)) if rows else torch.tensor(labels)


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


def epoch_keys(views: ViewSource, *, epoch: int, per_image: int = 1) -> Keys:
    """What a training epoch (from 1) looks at: of every image so many variants, new ones each time.

    Where variants are few they come round and round, and the plain image takes its turn among them: it is
    what the network will be asked.
    """
    start = (epoch - 1) * per_image + 1
    return _seen(views, np.arange(len(views)), np.arange(start, start + per_image)[:, None])


def _seen(views: ViewSource, index: np.ndarray, time: np.ndarray) -> Keys:
    """What is seen of images when they are seen for the `time`-th time, from 1."""
    number = views.augmentations
    return Keys.of(index, time if number is None else (time + index) % (1 + number))


Sampling = Callable[..., Keys]
"""Like `epoch_keys`: what an epoch looks at, of views, `epoch` and `per_image`."""


@dataclass(frozen=True)
class BalancedKeys:
    """Every class equally often in an epoch, which is as long as a plain one, up to a view of each class.

    Of a class the images come in shuffled rounds, and an epoch goes on in its round where the one before
    ended: images of a large class take turns, those of a small one come several times, each time as another
    view.
    """

    seed: int = 0

    def __call__(self, views: ViewSource, *, epoch: int, per_image: int = 1) -> Keys:
        labels = np.asarray(views.labels)
        classes = np.unique(labels)
        share = -(-len(labels) * per_image // len(classes))
        places = np.arange((epoch - 1) * share, epoch * share)
        found = [self._of_class(int(number), np.flatnonzero(labels == number), places) for number in classes]
        index, time = (np.concatenate(part) for part in zip(*found, strict=True))
        return _seen(views, index, time)

    def _of_class(self, number: int, own: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The images at these places of the endless row of rounds of a class, and for which time each."""
        rounds = places // len(own)
        orders = {time: self._order(number, time, len(own)) for time in np.unique(rounds).tolist()}
        turned = [orders[time][places[rounds == time] % len(own)] for time in orders]
        return own[np.concatenate(turned)], rounds + 1

    def _order(self, number: int, time: int, count: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(derived_seed(self.seed, number, time))
        return torch.randperm(count, generator=generator).numpy()


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
) -> Sequence[BatchPart]:
    """This process's part of every batch of a shuffled epoch, each made when it is asked for.

    A tiny last batch shares evenly with the one before: BatchNorm learns nothing from a few images, and no
    batch may be larger than was asked for, as the largest decides how much memory training takes.
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, epoch))
    keys = sampling(views, epoch=epoch, per_image=per_image)
    shuffled = keys.take(torch.randperm(len(keys), generator=generator))
    bounds = list(pairwise(_bounds(len(keys), batch)))
    return Made(lambda number: _part(shuffled[slice(*bounds[number])], share), range(len(bounds)))


def _bounds(count: int, batch: int) -> list[int]:
    """Where batches begin, and the end of the last."""
    found = [*range(0, count, batch), count]
    if len(found) > 2 and 2 * (count - found[-2]) < batch:
        found[-2] = found[-3] + -(-(count - found[-3]) // 2)
    return found


def _part(together: Keys, share: ProcessShare) -> BatchPart:
    mine = list(share.of(together))
    return BatchPart(mine, len(mine) * share.processes / len(together))


def plain_batches(count: int, *, batch: int, share: ProcessShare) -> Sequence[list[Key]]:
    """This process's part of all plain images, in order."""
    return chunks(share.of(Keys.plain(count)), batch)


def chunks(keys: Sequence[Key], batch: int) -> Sequence[list[Key]]:
    """Batches of keys, each made when it is asked for."""
    count = -(-len(keys) // batch)
    return Made(lambda number: list(keys[number * batch : (number + 1) * batch]), range(count))


def load(views: ViewSource, batches: Sequence[list[Key]], *, workers: int) -> Iterator[View]:
    """Batched views, collated; `workers` processes read ahead."""
    return Reading(views, workers)(batches)


class Reading:
    """Batched views, collated, as often as is asked for, read ahead by the same `workers` processes.

    They start once: after every fork the kernel copies each page of memory that this process writes to, which
    for some hundred forks took longer than the network.
    """

    def __init__(self, views: ViewSource, workers: int) -> None:
        source: Any = views
        self._coming = _Coming()
        sampler: Any = self._coming
        self._loader = DataLoader(
            source, batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0
        )

    def __call__(self, batches: Sequence[list[Key]]) -> Iterator[View]:
        """One reading after the other: the last ends where the next begins."""
        self._coming.batches = batches
        return iter(self._loader) if batches else iter(())


class _Coming:
    """Batches that may be others in the next reading."""

    batches: Sequence[list[Key]] = ()

    def __iter__(self) -> Iterator[list[Key]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)
