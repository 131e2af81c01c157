"""One thread that does one thing at a time, with a bounded number of tasks waiting."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Busy(Exception):
    """Too much is waiting already."""


class Worker:
    """Tasks are done in the order they came; one too many is refused at once.

    `when_idle` is called whenever nothing is left to do.
    """

    def __init__(self, name: str, *, waiting: int, when_idle: Callable[[], None] | None = None) -> None:
        self.name, self._when_idle = name, when_idle
        self._tasks: queue.Queue[tuple[Future[Any], Callable[[], Any]] | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._work, name=f"dprotonet-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._tasks.qsize()

    def submit(self, task: Callable[[], T]) -> "Future[T]":
        """The task's result to come."""
        future: Future[T] = Future()
        try:
            self._tasks.put_nowait((future, task))
        except queue.Full:
            raise Busy(f"busy: {self.waiting} tasks are {self.name} already; try again in a moment") from None
        return future

    def close(self, *, seconds: float = 5.0) -> None:
        """No more work: what waits is dropped, what runs is waited for a little."""
        while not self._tasks.empty():
            task = self._tasks.get_nowait()
            if task is not None:
                task[0].cancel()
        self._tasks.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, action = task
            if not future.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)
            del task, future, action  # or the last result would live until the next task comes
            if self._when_idle is not None and self._tasks.empty():
                self._when_idle()
