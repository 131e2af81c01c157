"""Something that takes a while to make, once: asked for at any time, with progress until it is there."""

import threading
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from dprotonet.progress import Progress
from dprotonet.web.worker import Busy, Worker

T = TypeVar("T")
State = Literal["preparing", "ready", "failed"]
Making = Callable[[Progress], T]  # given who hears of progress


class Prepared(Generic[T]):
    """Made by a worker when it is first asked for, and again after it failed."""

    def __init__(self, worker: Worker, make: Making[T], *, say: Callable[[Exception], str]) -> None:
        self._worker, self._make, self._say = worker, make, say
        self._lock = threading.Lock()
        self._begun = False
        self.state: State = "preparing"
        self.value: T | None = None
        self.done, self.total, self.message = 0, 0, ""

    def ask(self) -> T | None:
        """The thing, or None while it is being made; `state` says more."""
        with self._lock:
            if not self._begun:
                self._begun = True
                try:
                    self._worker.submit(self._work)
                except Busy:
                    self._begun = False
                    raise
        return self.value

    def _work(self) -> None:
        try:
            self.value = self._make(self._progress)
            self.state = "ready"
        except Exception as error:
            self.state, self.message = "failed", self._say(error)

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
