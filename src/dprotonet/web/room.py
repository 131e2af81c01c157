"""Room for what waits: sums that may not grow beyond bounds, and memory given back after a burst."""

import ctypes
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any

from dprotonet.web.worker import Busy


class Room:
    """So many bytes and pixels; what needs more than is left is refused, and comes again later."""

    def __init__(self, *, megabytes: float, megapixels: float) -> None:
        self._most = (megabytes * 1e6, megapixels * 1e6)
        self._taken = [0, 0]
        self._lock = threading.Lock()

    def take(self, count: int, pixels: int) -> None:
        """Raises Busy where there is no room; a single thing, however large, always has some."""
        wanted = (count, pixels)
        with self._lock:
            after = [taken + more for taken, more in zip(self._taken, wanted, strict=True)]
            if any(self._taken) and any(sum_ > most for sum_, most in zip(after, self._most, strict=True)):
                raise Busy("busy: too many large images are waiting already; try again in a moment")
            self._taken = after

    def give_back(self, count: int, pixels: int) -> None:
        with self._lock:
            self._taken = [taken - less for taken, less in zip(self._taken, (count, pixels), strict=True)]

    def during(self, count: int, pixels: int, start: Callable[[], "Future[Any]"]) -> "Future[Any]":
        """What `start` began, with room taken until it ends."""
        self.take(count, pixels)
        try:
            future = start()
        except BaseException:
            self.give_back(count, pixels)
            raise
        future.add_done_callback(lambda _: self.give_back(count, pixels))
        return future


def give_back_memory() -> None:
    """Hand freed memory back to the system: the C library of Linux keeps much of it after a burst."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none, and keeps less
