"""A piece of slow work that can be watched and cancelled: made by a worker, watched by any number of pages.

A watcher that is slow skips what it missed: only the latest news of each kind is kept. When the last watcher
has gone and does not come back, the work is cancelled; work that nobody ever watched, or with endless
`patience`, goes on to its end.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

State = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")
PATIENCE = 3.0  # seconds that a watcher has to come back


class Cancelled(Exception):
    """The work is no longer wanted."""


class Job:
    """State, progress, the latest news by name, and in the end a result or a message."""

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self.id = ""
        self.state: State = "waiting"
        self.done, self.total = 0, 0
        self.message = ""
        self.step = ""  # what it is doing now, in words
        self.result: Any = None
        self.news: dict[str, tuple[int, Any]] = {}
        self.version = 0
        self._patience, self._left_at, self._watchers = patience, float("inf"), 0
        self._cancelled, self._lock = threading.Event(), threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    # ── for the worker ──

    def run(self, work: Callable[["Job"], Any], *, say: Callable[[Exception], str]) -> None:
        """Do the work; `say` puts an error into words."""
        if self.wanted():
            self._change(state="running")
        try:
            self.check()
            self.result = work(self)
            self._change(state="done")
        except Cancelled:
            self._change(state="cancelled", message="cancelled")
        except Exception as error:
            self._change(state="failed", message=say(error))

    def check(self) -> None:
        """Raises if the work is no longer wanted."""
        if not self.wanted():
            raise Cancelled

    def wanted(self) -> bool:
        return not self._cancelled.is_set() and time.monotonic() - self._left_at < self._patience

    def progress(self, done: int, total: int, news: Mapping[str, Any] | None = None) -> None:
        """How far the work is, and what there is to see of it."""
        with self._lock:
            self.done, self.total = done, total
            self.news |= {name: (self.version + 1, item) for name, item in (news or {}).items()}
        self._change()

    def begin_step(self, words: str) -> None:
        """What it is doing from now on; progress begins anew."""
        self.step = words
        self.progress(0, 0)

    # ── for those who want it ──

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def cancel(self) -> None:
        """Ask for an end; work that has not begun ends at once."""
        self._cancelled.set()
        if self.state == "waiting":
            self._change(state="cancelled", message="cancelled")

    def since(self, version: int) -> dict[str, Any]:
        """News that came after a version."""
        with self._lock:
            return {name: item for name, (when, item) in self.news.items() if when > version}

    def join(self) -> None:
        """Somebody watches."""
        with self._lock:
            self._watchers += 1
            self._left_at = float("inf")

    def leave(self) -> None:
        """Somebody watches no longer."""
        with self._lock:
            self._watchers -= 1
            if self._watchers == 0:
                self._left_at = time.monotonic()

    async def changed(self, version: int, *, seconds: float) -> bool:
        """Wait until there is something newer than `version`; false if the time is up first."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(waiter)
        try:
            if self.version <= version:
                await asyncio.wait_for(waiter[1].wait(), seconds)
            return True
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiter)

    def _change(self, *, state: State | None = None, message: str = "") -> None:
        with self._lock:
            if state is not None and not self.ended:
                self.state, self.message = state, message
            self.version += 1
            waiting = list(self._waiting)
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
