"""The run's own data, where it is still there: test images to try, training images to compare with."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.split_evidence import Splits, splits_of_run
from dprotonet.experiment.trained.plain_model import PlainModel
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.web.image_record import thumbnail
from dprotonet.web.store import BoundedStore
from dprotonet.web.worker import Busy, Worker

Split = Literal["train", "test"]
_THUMBNAILS = 400  # kept in memory, a few kilobytes each
SIDE = 160


class NoSuchImage(LookupError):
    """A number that the data does not have."""


@dataclass(frozen=True)
class SampleFacts:
    """One image of the data, by its number."""

    index: int
    name: str
    label: int


class Samples:
    """Both splits, opened once by the reading thread; a run whose data is gone has none, and a reason."""

    def __init__(self, model: TrainedModel, worker: Worker) -> None:
        self.settings = replace(model.config.data, image_cache="")
        self._worker = worker
        self._data: Future[Splits] = worker.submit(lambda: _opened(model))
        self._thumbnails: BoundedStore[bytes] = BoundedStore(_THUMBNAILS)

    def data(self) -> Splits:
        """The splits; raises UserError where they are gone, Busy while they are read."""
        if not self._data.done():
            raise Busy("the run's data is still being read; try again in a moment")
        return self._data.result()

    @property
    def known(self) -> bool:
        """Whether it is known by now if there are any."""
        return self._data.done()

    def waited(self) -> Splits:
        """The same, for threads that may wait."""
        return self._data.result()

    @property
    def reason(self) -> str | None:
        """Why there are none; None while that is not known, and where there are."""
        if not self._data.done():
            return None
        error = self._data.exception()
        return None if error is None else str(error) if isinstance(error, UserError) else type(error).__name__

    def listed(self, label: int | None, offset: int, limit: int) -> tuple[int, Sequence[SampleFacts]]:
        """How many test images there are of a class (or of all), and some of them."""
        test = self.data().test
        chosen = [index for index, one in enumerate(test.labels) if label is None or one == label]
        part = chosen[offset : offset + limit]
        return len(chosen), [SampleFacts(index, test.name(index), test.labels[index]) for index in part]

    def pixels(self, split: Split, index: int) -> tuple[str, int, Tensor]:
        """Name, label and image (3, S, S) uint8; to be called in a worker."""
        images = self.data().train if split == "train" else self.data().test
        if not 0 <= index < len(images):
            raise NoSuchImage(f"the {split} data has no image {index}")
        sample = images[index]
        return sample.name, sample.label, sample.image

    def same(self, theirs: "Samples", index: int) -> int | None:
        """The test image of another run as this run has it, so that neither gets a resized one.

        None where the data is gone or was made in another way: a name alone would not do.
        """
        try:
            own, others = self.waited().test, theirs.waited().test
        except UserError:
            return None
        alike = self.settings == replace(theirs.settings, image_size=self.settings.image_size)
        known = alike and 0 <= index < min(len(own), len(others))
        return index if known and own.name(index) == others.name(index) else None

    def thumbnail(self, split: Split, index: int) -> "Future[bytes]":
        """A small picture, read or drawn by the reading thread, then kept."""
        key = f"{split}/{index}"
        kept = self._thumbnails.find(key)
        if kept is not None:
            ready: Future[bytes] = Future()
            ready.set_result(kept)
            return ready
        return self._worker.submit(self._made(split, index, key))

    def _made(self, split: Split, index: int, key: str) -> Callable[[], bytes]:
        def make() -> bytes:
            kept = self._thumbnails.find(key)
            if kept is None:
                kept = thumbnail(self.pixels(split, index)[2], SIDE)
                self._thumbnails.add(kept, key=key)
            return kept

        return make


def _opened(model: TrainedModel) -> Splits:
    if isinstance(model, PlainModel):
        raise UserError("a network that was not trained here has no test images; drop one of your own")
    splits = splits_of_run(model)
    if tuple(splits.train.classes) != model.classes:
        raise UserError(f"{model.config.data.data} has other classes now than when the run was trained")
    return splits
