"""What a model says of many image files, batch by batch: threads read ahead while the network works.

Decoders let other threads run, so that reading hides behind the network. A file that cannot be read comes
with the reason and ends nothing.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from dprotonet.data.image import UnreadableImage
from dprotonet.errors import UserError
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.training.processes import Group

_AHEAD = 2  # batches that wait, read, for the network
_THREADS = 8  # at most

Read = Tensor | UserError
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class AnsweredFile:
    """An image file with its answer, or with the error of reading it."""

    path: Path
    answer: Answer | None
    error: UserError | None = None

    @property
    def reason(self) -> str:
        """Why there is no answer, without the name of the file; nothing where there is one."""
        if isinstance(self.error, UnreadableImage) and self.error.reason:
            return self.error.reason
        return "" if self.error is None else str(self.error)


def batches_of(paths: Sequence[Path], size: int) -> list[Sequence[Path]]:
    """In order, all of one size but the last."""
    return [paths[start : start + size] for start in range(0, len(paths), size)]


def answered_files(model: TrainedModel, batches: Iterable[Sequence[Path]]) -> Iterator[list[AnsweredFile]]:
    """The answers of one batch after the other, in order."""
    for paths, read in _read_ahead(batches, model):
        answers = iter(_answers(model, [one for one in read if isinstance(one, Tensor)]))
        yield [
            AnsweredFile(path, next(answers)) if isinstance(one, Tensor) else AnsweredFile(path, None, one)
            for path, one in zip(paths, read, strict=True)
        ]


def answered_together(
    model: TrainedModel,
    batches: Sequence[Sequence[Path]],
    group: Group,
    said: Callable[[AnsweredFile], T],
) -> Iterator[list[T]]:
    """What `said` makes of the answers where processes share the batches: the main one gets all, in order.

    Batches are those of one process, so that answers are too.
    """
    own = answered_files(model, group.of(batches))
    for start in range(0, len(batches), group.processes):
        mine = next(own) if start + group.process < len(batches) else []
        for items in group.gathered([said(item) for item in mine]):
            if items and group.is_main:
                yield items


def _answers(model: TrainedModel, pixels: list[Tensor]) -> list[Answer]:
    if not pixels:
        return []
    device = model.network.head.weight.device
    return model.answers_to(model.normalise(torch.stack(pixels).to(device)))


def _read_ahead(
    batches: Iterable[Sequence[Path]], model: TrainedModel
) -> Iterator[tuple[Sequence[Path], list[Read]]]:
    waiting: deque[tuple[Sequence[Path], list[Future[Read]]]] = deque()
    pool = ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1))
    try:
        for paths in batches:
            waiting.append((paths, [pool.submit(partial(_read, model), path) for path in paths]))
            if len(waiting) > _AHEAD:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(paths: Sequence[Path], reading: list[Future[Read]]) -> tuple[Sequence[Path], list[Read]]:
    return paths, [future.result() for future in reading]


def _read(model: TrainedModel, path: Path) -> Read:
    try:
        return model.pixels(path)
    except UserError as error:
        return error
