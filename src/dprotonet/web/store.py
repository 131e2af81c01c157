"""Things by an id that nobody can guess, the latest so many of them: memory does not grow."""

import secrets
import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


def new_id() -> str:
    """One that nobody can guess."""
    return secrets.token_urlsafe(12)


class BoundedStore(Generic[T]):
    """The latest `most` things; the longest unused goes first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._things: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._things)

    def add(self, thing: T, *, key: str | None = None) -> str:
        """The id of the thing from now on."""
        key = key or new_id()
        with self._lock:
            self._things[key] = thing
            while len(self._things) > self.most:
                self._things.popitem(last=False)
        return key

    def find(self, key: str) -> T | None:
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
            return self._things.get(key)

    def values(self) -> list[T]:
        with self._lock:
            return list(self._things.values())
