"""Around every request: who asks, how much they send, and what browsers may do with the answer.

One middleware for all three, because each has to see every request, refused ones and static files included;
Starlette has none that bounds a body, and none that sets headers (why not its others: web/access.py).
"""

import logging

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dprotonet.web.access import COOKIE, Access

logger = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
OPEN = ("/healthz",)  # without a token; links bring their own
UNEXPECTED = "this failed unexpectedly; the server's log says more"
SAFE = ("GET", "HEAD", "OPTIONS")
_WORDS = 1_000_000  # bytes of a body that is no form
_ARRIVING = 10  # times the largest body: of all that arrive at once


class TooMuch(HTTPException):
    """A body larger than is accepted; raised while it is read, so the application answers."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"that is larger than {most / 1e6:g} MB; send a smaller file")


class Guard:
    """ASGI middleware; an application behind it sees only requests that may come in."""

    def __init__(self, app: ASGIApp, *, door: Access, most_bytes: int) -> None:
        self.app, self.door, self.most_bytes = app, door, most_bytes
        self._arriving = 0  # bytes of bodies whose requests are not answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        begun = False

        async def guarded_send(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        request = Request(scope)
        most = self._most(request.headers)
        answer, arrived = self._refusal(request) or self.app, list[int]()
        try:
            await answer(scope, self._counted(receive, most, arrived), guarded_send)
        except ClientDisconnect:
            return
        except Exception as error:
            if begun:
                raise
            logger.error("unexpected %s at %s", type(error).__name__, scope["path"], exc_info=error)
            await _refused(500, UNEXPECTED)(scope, receive, guarded_send)
        finally:
            self._arriving -= sum(arrived)

    def _most(self, headers: Headers) -> int:
        """Bytes of a body: files come in forms, everything else is short."""
        return self.most_bytes if headers.get("content-type", "").startswith("multipart/") else _WORDS

    def _counted(self, receive: Receive, most: int, arrived: list[int]) -> Receive:
        """The body, which may not grow beyond `most`, whatever length was stated; nor all bodies together."""

        async def counted() -> Message:
            message = await receive()
            arrived.append(len(message.get("body", b"")))
            self._arriving += arrived[-1]
            if sum(arrived) > most:
                raise TooMuch(most)
            if self._arriving > _ARRIVING * self.most_bytes:
                raise HTTPException(503, "busy: too much is being sent at once; try again in a moment")
            return message

        return counted

    def _refusal(self, request: Request) -> Response | None:
        """The answer to those who may not come in."""
        headers, path = request.headers, request.url.path
        host = headers.get("host", "")
        if not self.door.answers_to(host):
            return _refused(421, "this server does not answer to that name; use its address, or give --name")
        own = self.door.is_own_page(host, headers.get("origin", ""), headers.get("sec-fetch-site", ""))
        if request.method not in SAFE and not own:
            return _refused(403, "requests from other pages are refused")
        admitted = self.door.admits(headers.get("authorization", ""), request.cookies.get(COOKIE, ""))
        if not (path in OPEN or path.startswith("/enter/")) and not admitted:
            return _unknown_caller()
        if _stated_length(headers) > self._most(headers):
            return _refused(413, TooMuch(self._most(headers)).detail)
        return None


def _stated_length(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _refused(status: int, words: str) -> Response:
    return JSONResponse({"detail": words}, status, {"Connection": "close"})


def _unknown_caller() -> Response:
    words = "a token is needed: open the link that the server printed, or send Authorization: Bearer TOKEN"
    return JSONResponse({"detail": words}, 401, {"WWW-Authenticate": "Bearer", "Connection": "close"})


def _add_headers(headers: MutableHeaders, path: str) -> None:
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-cache" if path.startswith("/static/") else "no-store")
