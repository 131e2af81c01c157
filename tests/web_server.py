"""A served run for the tests of the page and the API: settings, uploads, a server on a free port."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi.testclient import TestClient
from PIL import Image
from torch import Tensor

import dprotonet as dp
from dprotonet.data.upload import UploadLimits
from dprotonet.web.access import Access
from dprotonet.web.serve import listening, server_of
from dprotonet.web.service import Service

HERE = "http://127.0.0.1:8000"
SMALL = UploadLimits(megabytes=0.2, megapixels=0.5)
QUICK = dp.preset("fast", iterations=2, zoom=1.0)
ENDLESS = dp.preset("fast", iterations=100_000, zoom=1.0)


def png_of(pixels: Tensor) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(stream, format="PNG")
    return stream.getvalue()


def sent(client: TestClient, data: bytes, name: str = "bird.png") -> dict[str, Any]:
    """The answer to an upload that must be fine."""
    answer = client.post("/api/images", files={"file": (name, data)})
    assert answer.status_code == 201, answer.text
    content: dict[str, Any] = answer.json()
    return content


def until(condition: Callable[[], object], *, seconds: float = 90.0) -> None:
    """Wait for something that other threads do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def served(service: Service, door: Access | None = None) -> Iterator[str]:
    """The service on a free port of this machine, in a thread of its own."""
    listener = listening("127.0.0.1", 0)
    server = server_of(service, door or Access())
    server.config.lifespan = "off"  # the service outlives the server
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
