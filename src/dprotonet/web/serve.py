"""Listening at an address: the socket is opened first, so that a port in use is said in one line."""

import socket
from collections.abc import Callable

import uvicorn

from dprotonet.errors import Ended, UserError
from dprotonet.web.access import Access
from dprotonet.web.app import create_app
from dprotonet.web.service import Service
from dprotonet.web.timed import TimedProtocol

_BACKLOG = 128
_SENDING = 256 * 1024  # bytes that the system may hold of an answer: soon known when nobody reads


def serve(service: Service, door: Access, *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` is told where."""
    listener = listening(host, port)
    announce(_address(listener) + (door.new_link() if door.token else "/"))
    try:
        server_of(service, door).run(sockets=[listener])
    except Ended:
        raise
    except KeyboardInterrupt:
        return  # the way a server is stopped


def server_of(service: Service, door: Access) -> uvicorn.Server:
    """The server, not yet running; it says nothing unless something is wrong."""
    config = uvicorn.Config(
        create_app(service, door),
        log_level="warning",
        access_log=False,
        server_header=False,
        http=TimedProtocol,
        timeout_graceful_shutdown=3,
        proxy_headers=False,
    )
    return uvicorn.Server(config)


def listening(host: str, port: int) -> socket.socket:
    """A socket at that address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENDING)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise UserError(
            f"cannot listen at {host} port {port}: {error.strerror or error}; try another --port or --host"
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
