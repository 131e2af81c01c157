"""How long a client may take: to say what it wants, to send it, and to read the answer.

uvicorn waits for ever for the rest of a request, and for a client that does not read. Here a request has to
be complete in its time, the body by its size, and a client that reads nothing of what waits for it is
dropped. Where too many connections are open, the one that has said nothing for longest makes room, or a
stream of events: browsers open it again.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER = 10.0  # seconds for the header of a request
GRACE, PACE = 20.0, 20_000  # for its body: seconds, and bytes a second beyond them
UNREAD = 15.0  # seconds that an answer may wait for its reader
CONNECTIONS = 500  # open at a time
LOOK = 0.5  # seconds between looks
_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """uvicorn's protocol with a clock."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._make_room()
        super().connection_made(transport)
        self._since, self._received, self._last = self.loop.time(), 0, self.cycle
        self._unread_since: float | None = None
        self._clock = self.loop.call_later(LOOK, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.between_requests and self._last is not self.cycle:  # the first bytes of the next request
            self._since, self._received, self._last = self.loop.time(), 0, self.cycle
        self._received += len(data)
        super().data_received(data)

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    @property
    def between_requests(self) -> bool:
        """Whether no request is known that has to be answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def incomplete(self) -> bool:
        """Whether something of a request is still to come."""
        return self.between_requests or self.cycle.more_body

    @property
    def being_told(self) -> bool:
        """Whether an answer has begun that is not at its end."""
        return not self.between_requests and self.cycle.response_started

    def _look(self) -> None:
        if self.transport.is_closing() and self._unread_since is None:
            return
        now = self.loop.time()
        if self._unread_since is not None and now - self._unread_since > UNREAD:
            self.transport.abort()
            return
        if now - self._since > self._allowed():
            if self.between_requests or not self.cycle.response_started:
                self.transport.write(_LATE)
            self.transport.close()
            return
        self._clock = self.loop.call_later(LOOK, self._look)

    def _allowed(self) -> float:
        """Seconds since the request began; an idle connection is uvicorn's own business."""
        if self.between_requests:
            return HEADER if self._last is self.cycle else float("inf")
        return GRACE + self._received / PACE if self.cycle.more_body else float("inf")

    def _make_room(self) -> None:
        """By the oldest that should be complete by now; else by the oldest stream of events, or anything."""
        ours: list[Any] = [one for one in self.connections if not one.transport.is_closing()]
        if len(ours) < CONNECTIONS:
            return
        incomplete = [one for one in ours if one.incomplete]
        late = [one for one in incomplete if self.loop.time() - one._since > LOOK]
        told = [one for one in ours if one.being_told]
        oldest = min(late or told or incomplete or ours, key=lambda one: one._since)
        oldest.transport.abort()
