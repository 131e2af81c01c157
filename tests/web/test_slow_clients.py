"""Clients that send half, read nothing or send too much: others go on, memory comes back. Real sockets."""

import http.client
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from dprotonet.web import timed
from dprotonet.web.app import create_app
from dprotonet.web.service import Service
from heavy_images import png
from web_server import HERE, sent, served, until

MB = 1e6


def form(data: bytes) -> tuple[bytes, dict[str, str]]:
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    return head + data + b"\r\n--x--\r\n", {"Content-Type": "multipart/form-data; boundary=x"}


def posted(address: str, data: bytes, *, seconds: float = 60) -> tuple[int, dict[str, Any]]:
    line = http.client.HTTPConnection(urlsplit(address).netloc, timeout=seconds)
    body, headers = form(data)
    line.request("POST", "/api/images", body, headers)
    answer = line.getresponse()
    return answer.status, json.loads(answer.read())


@contextmanager
def lines(address: str, count: int, words: str) -> Iterator[list[socket.socket]]:
    """So many connections that all say the same and then nothing."""
    place = urlsplit(address)
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            line = stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=30))
            line.sendall(words.replace("HOST", place.netloc).encode())
            opened.append(line)
        yield opened


def open_lines(all_of_them: list[socket.socket]) -> int:
    """How many the server has not closed; an answer in words counts as closed."""
    ready, _, _ = select.select(all_of_them, [], [], 0)
    return len(all_of_them) - len(ready)


HALF_A_HEADER = "POST /api/images HTTP/1.1\r\nHost: HOST\r\nX-Slow: "
HALF_A_BODY = (
    "POST /api/images HTTP/1.1\r\nHost: HOST\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    "Content-Length: 1000\r\n\r\n--x\r\n"
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "HEADER", 2.0)
    monkeypatch.setattr(timed, "GRACE", 2.0)
    monkeypatch.setattr(timed, "UNREAD", 1.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("words", [HALF_A_HEADER, HALF_A_BODY], ids=["header", "body"])
def test_half_sent_requests_block_nobody(service: Service, bird: bytes, words: str) -> None:
    """230 of them: all 200 places for connections were theirs, for good."""
    with served(service) as address, lines(address, 230, words) as waiting:
        status, _ = posted(address, bird)
        assert status == 201
        until(lambda: open_lines(waiting) == 0, seconds=60)
        assert waiting[0].recv(100).startswith(b"HTTP/1.1 408")
        assert posted(address, bird)[0] == 201


@pytest.mark.usefixtures("quick")
def test_a_byte_at_a_time_is_no_excuse(service: Service) -> None:
    with served(service) as address, lines(address, 1, HALF_A_HEADER) as (line,):
        begun = time.monotonic()
        while open_lines([line]) and time.monotonic() - begun < 30:
            line.sendall(b"x")
            time.sleep(0.1)
        assert 1.5 < time.monotonic() - begun < 30


@pytest.mark.usefixtures("quick")
def test_a_slow_body_in_time_is_welcome(service: Service, bird: bytes) -> None:
    """A pause shorter than the grace, and an idle connection that is used again."""
    with served(service) as address:
        place, (body, headers) = urlsplit(address), form(bird)
        line = http.client.HTTPConnection(place.netloc, timeout=30)
        for _ in range(2):
            line.putrequest("POST", "/api/images")
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                line.putheader(name, value)
            line.endheaders()
            line.send(body[:100])
            time.sleep(0.7)
            line.send(body[100:])
            answer = line.getresponse()
            assert (answer.status, len(answer.read()) > 100) == (201, True)
            time.sleep(0.7)


def test_too_many_connections_make_room(
    service: Service, bird: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed, "CONNECTIONS", 20)
    with served(service) as address, lines(address, 60, HALF_A_HEADER) as waiting:
        until(lambda: open_lines(waiting) <= 20)
        assert posted(address, bird)[0] == 201


def test_streams_of_events_make_room(endless: Service, bird: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens hundreds took every place, and the handles of the process: none is incomplete."""
    monkeypatch.setattr(timed, "CONNECTIONS", 20)
    with served(endless) as address:
        client = TestClient(create_app(endless), base_url=HERE)
        image = sent(client, bird)["image"]
        job = client.post(f"/api/images/{image}/places", json={"prototypes": [0]}).json()["job"]
        words = f"GET /api/jobs/{job}/events HTTP/1.1\r\nHost: HOST\r\n\r\n"
        with lines(address, 60, words) as streams:
            assert posted(address, bird)[0] == 201
            until(lambda: sum(not closed(stream) for stream in streams) <= 20)
            assert posted(address, bird)[0] == 201
            endless.job(job).cancel()


def closed(line: socket.socket) -> bool:
    """Whether the other end has gone; what it had said is read."""
    line.setblocking(False)
    try:
        while line.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.usefixtures("quick")
def test_events_that_nobody_reads_are_dropped(endless: Service, bird: bytes) -> None:
    """The connection stays open at the other end, and its work stops all the same."""
    with served(endless) as address:
        client = TestClient(create_app(endless), base_url=HERE)
        image = sent(client, bird)["image"]
        job = client.post(f"/api/images/{image}/places", json={"prototypes": [1]}).json()["job"]
        found = endless.job(job)
        found._patience = 0.2
        place = urlsplit(address)
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect((place.hostname, place.port))
            line.sendall(f"GET /api/jobs/{job}/events HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
            until(lambda: found.state == "running")

            def shout() -> bool:
                found.progress(1, 2, {"place": "x" * 500_000})
                return found.ended

            until(shout, seconds=60)
        assert found.state == "cancelled"


def test_many_bodies_at_once_are_refused_while_they_come(service: Service, bird: bytes) -> None:
    """What is only promised counts for nothing; of what comes, ten of the largest are held at a time."""
    length = service.settings.limits.bytes
    words = HALF_A_BODY.replace("1000", str(length)) + "x" * (length - 1000)
    with served(service) as address, lines(address, 8, words) as waiting:
        assert posted(address, bird)[0] == 201
        with lines(address, 8, words):
            until(lambda: open_lines(waiting) < 8 or posted(address, bird)[0] == 503)
    with served(service) as address:
        assert posted(address, bird)[0] == 201


# ── many large images ──


def memory_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024 / MB


@contextmanager
def process_of(run: Path) -> Iterator[tuple[str, int]]:
    """`dprotonet serve` as a process of its own, and its number."""
    command = [sys.executable, "-m", "dprotonet", "serve", str(run), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().split()[-1].rstrip("/"), server.pid
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_large_uploads_leave_small_ones_alone(web_run: Path, bird: bytes) -> None:
    """50 of 49 megapixels at once: most are told to come again, and a small image waits for none of them."""
    large, answers, slowest = png(7000, 7000, kind=0), [], 0.0
    with process_of(web_run) as (address, process):
        for _ in range(5):
            assert posted(address, bird)[0] == 201
        assert posted(address, large)[0] == 201
        before = memory_mb(process)

        def send() -> None:
            try:
                answers.append(posted(address, large, seconds=120)[0])
            except OSError:  # told while it was still sending
                answers.append(503)

        senders = [threading.Thread(target=send) for _ in range(50)]
        for sender in senders:
            sender.start()
        while any(sender.is_alive() for sender in senders):
            begun = time.monotonic()
            assert posted(address, bird)[0] == 201
            slowest = max(slowest, time.monotonic() - begun)
        assert set(answers) == {201, 503}
        assert answers.count(201) >= 3
        assert slowest < 20  # idle: a tenth of a second; before, all fifty were unpacked first
        until(lambda: memory_mb(process) < 1.2 * before, seconds=30)
