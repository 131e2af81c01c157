"""Who may come in: names the server answers to, and the token where it listens beyond this machine.

A page from elsewhere can make a browser send requests to this machine, even under a name of its own that
resolves here. So only known names (and numbers, which no such page can use) are answered, requests that
change something must come from our own page, and beyond the machine a token is needed.

Starlette's TrustedHostMiddleware knows names only: it can neither let any number in nor say in JSON what to
do. FastAPI's HTTPBearer belongs to single routes; the page, its files and the cookie would go unguarded.
"""

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from dprotonet.errors import UserError

LOCAL = ("127.0.0.1", "localhost", "::1")
COOKIE = "dprotonet"
SHORTEST = 16  # characters of a token
_MOST = 100  # links and sessions that are remembered


class Access:
    """Names, token, one-time links and the sessions that came of them."""

    def __init__(self, *, host: str = "127.0.0.1", token: str = "", names: Iterable[str] = ()) -> None:
        if host not in LOCAL and not token:
            raise UserError(
                f"--host {host} lets other machines in: give a secret with --token, or leave --host out"
            )
        if token and len(token) < SHORTEST:
            raise UserError(f"--token has {len(token)} characters; use at least {SHORTEST}, hard to guess")
        self.token, self._any_number = token, host not in LOCAL
        self.names = {*LOCAL, host, *names} | ({socket.gethostname(), socket.getfqdn()} if token else set())
        self._links: list[str] = []
        self._sessions: list[str] = []

    def answers_to(self, host_header: str) -> bool:
        """Whether a Host header names this server."""
        name = _host(host_header)
        return name in self.names or (self._any_number and _is_number(name))

    def is_own_page(self, host_header: str, origin: str, fetched_from: str) -> bool:
        """Whether a request that changes something comes from our page, or from no page at all."""
        if fetched_from and fetched_from not in ("same-origin", "none"):
            return False
        return not origin or _place(origin) == host_header

    def admits(self, authorization: str, cookie: str) -> bool:
        """By header or by cookie; always, where no token was asked for."""
        if not self.token:
            return True
        kind, _, given = authorization.partition(" ")
        by_header = kind.lower() == "bearer" and _same(given.strip(), self.token)
        return by_header or any(_same(cookie, known) for known in self._sessions)

    def new_link(self) -> str:
        """A path that opens the door once."""
        self._links = [*self._links, secrets.token_urlsafe(24)][-_MOST:]
        return f"/enter/{self._links[-1]}"

    def enter(self, key: str) -> str | None:
        """The cookie for a link, which is then spent; None for a link that is not known."""
        known = [link for link in self._links if _same(key, link)]
        if not known:
            return None
        self._links.remove(known[0])
        self._sessions = [*self._sessions, secrets.token_urlsafe(24)][-_MOST:]
        return self._sessions[-1]


def _same(given: str, known: str) -> bool:
    """In a time that does not tell how much is right."""
    return hmac.compare_digest(given.encode(), known.encode())


def _host(header: str) -> str:
    """The name in a Host header, without port and brackets; nothing if it is malformed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _place(origin: str) -> str | None:
    """Name and port of an origin; None if it is malformed."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
