"""A classifier's outputs, read by its task; what the task is, the first pass tells unless the user does.

The pass that the task is found in is one that is needed anyway. While it runs, the last softmax or sigmoid
is remembered: where its result is the output, the model gives probabilities already.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dprotonet.errors import UserError
from dprotonet.interpretation.returned import OutputName, Reader
from dprotonet.interpretation.task import Ending, Kind, Task

logger = logging.getLogger(__name__)

Model = nn.Module | Callable[[Tensor], Any]  # images to outputs (B, K) or (B,), or to what holds them
GivenTask = Task | Kind | None  # None: to be found

_aten = torch.ops.aten
_SOFTMAX = (_aten._softmax, _aten.softmax)  # the second without gradients, where nothing is taken apart
_WRONG_SHAPE = (  # what torch and timm say of images that a network is not made for
    "channels, but got",
    "mat1 and mat2 shapes",
    "doesn't match model",
    "Kernel size can't be greater",
)
_COPIES = (_aten._to_copy, _aten.to, _aten.clone, _aten.contiguous)


class Outputs:
    """What a model says of each class of its task: columns (B, C) of images (B, channels, H, W)."""

    def __init__(
        self,
        model: Model,
        task: GivenTask = None,
        *,
        classes: Sequence[str] = (),
        output: OutputName = None,
    ) -> None:
        self.model, self.classes, self._read = model, tuple(classes), Reader(output)
        given = Task(task) if isinstance(task, str) else task
        self.kind: Kind | None = None if given is None else given.kind
        self.task = task if isinstance(task, Task) else None  # known with the first pass at the latest

    def names(self) -> tuple[str, ...]:
        """What targets may be called; one name alone is class 1 of a binary classifier."""
        kind = self.kind or ("binary" if len(self.classes) == 1 else "single")
        return Task(kind).names(self.classes)

    def raw(self, images: Tensor) -> Tensor:
        """As the model gives them, (B, K)."""
        if self.task is not None:
            outputs = class_scores(self.model, images, self._read)
            self.task.check(outputs)
            return outputs
        with _LastActivation() as last:
            outputs = class_scores(self.model, images, self._read)
        self._settle(outputs, last.ending_of(outputs))
        return outputs

    def scores(self, images: Tensor) -> Tensor:
        """Logits of every class, or the value up and down."""
        raw = self.raw(images)
        return self._task.scores(raw.float())

    def watched(self, images: Tensor) -> Tensor:
        """Probabilities of every class, or the value up and down."""
        raw = self.raw(images)
        return self._task.watched(raw.float())

    def predicted(self, images: Tensor) -> Tensor:
        """The class of each image, (B,)."""
        raw = self.raw(images)
        return self._task.predicted(raw)

    @property
    def _task(self) -> Task:
        assert self.task is not None
        return self.task

    def _settle(self, outputs: Tensor, ending: Ending | None) -> None:
        with torch.no_grad():
            found = Task.found(outputs.detach(), ending, kind=self.kind, classes=len(self.classes))
        found.names(self.classes)
        if self.kind is None and found != Task():
            doubtful = found.kind != "single" and not self.classes
            logger.log(logging.WARNING if doubtful else logging.INFO, "%s", found.said())
        self.task, self.kind = found, found.kind


def class_scores(model: Model, images: Tensor, read: Reader | None = None) -> Tensor:
    """Outputs (B, K) of a classifier, also of one that wraps them (`returned`); of (B,) one each."""
    try:
        return (read or Reader())(model(images), len(images))
    except (RuntimeError, AssertionError) as error:
        if not any(words in str(error) for words in _WRONG_SHAPE):
            raise
        said = str(error).splitlines()[0]
        raise UserError(f"the model refused images of shape {tuple(images.shape)}: {said}") from error


class _LastActivation(TorchDispatchMode):
    """Sees every operation of this thread, and keeps the last softmax or sigmoid with its result."""

    def __init__(self) -> None:
        super().__init__()
        self._ending: Ending = "softmax"
        self._result: Tensor | None = None  # kept, so that no other tensor comes to lie in its place

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        kind = func.overloadpacket
        if kind in _SOFTMAX:
            dim = args[1] if len(args) > 1 else (kwargs or {})["dim"]
            self._ending = "softmax" if args[0].shape[dim] > 1 else "softmax of one"
            self._result = result
        elif kind is _aten.sigmoid:
            self._ending, self._result = "sigmoid", result
        elif self._result is not None and args and self._is_last(args[0]):
            if kind in _COPIES:
                self._result = result
            elif func._schema.is_mutable:  # whatever it is now, it is no probability
                self._result = None
        return result

    def ending_of(self, outputs: Tensor) -> Ending | None:
        """Which of them the outputs are, or are a part of."""
        return self._ending if self._is_last(outputs) else None

    def _is_last(self, given: Any) -> bool:
        if self._result is None or not isinstance(given, Tensor):
            return False
        own, theirs = self._result.untyped_storage(), given.untyped_storage()
        return own.data_ptr() == theirs.data_ptr() != 0
