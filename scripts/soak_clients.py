"""Clients of all sorts for one server on this machine: each does one thing, and says how it was answered.

Everything is bounded in time and goes to 127.0.0.1 only. `CLIENTS` lists them with how often each comes.
"""

import http.client
import io
import json
import random
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from PIL import Image
from tests.heavy_images import by_pillow, grey, jpeg, png

SECONDS = 60.0  # for any answer
Client = Callable[["Visit"], str]


@dataclass
class Visit:
    """A server's address, chance, and pictures to send."""

    address: str
    chance: random.Random
    pictures: list[Image.Image]

    def __post_init__(self) -> None:
        place = urlsplit(self.address)
        if place.hostname != "127.0.0.1" or place.port is None:
            raise SystemExit(f"{self.address}: only servers of this machine are visited")
        self.place, self.port = place.netloc, place.port

    def asked(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> tuple[int, bytes]:
        line = http.client.HTTPConnection(self.place, timeout=SECONDS)
        try:
            line.request(method, path, body, {"Content-Type": kind} if kind else {})
            answer = line.getresponse()
            return answer.status, answer.read()
        finally:
            line.close()

    def said(self, path: str, **content: object) -> tuple[int, dict]:
        status, body = self.asked("POST", path, json.dumps(content).encode(), "application/json")
        return status, json.loads(body)

    def sent(self, data: bytes, name: str = "a.png") -> tuple[int, dict]:
        body, kind = form(data, name)
        status, answer = self.asked("POST", "/api/images", body, kind)
        return status, json.loads(answer)

    def encoded(self, kind: str) -> bytes:
        stream = io.BytesIO()
        self.chance.choice(self.pictures).save(stream, kind)
        return stream.getvalue()

    def image(self) -> dict:
        """The reading of a picture that was just sent."""
        status, reading = self.sent(self.encoded("PNG"))
        if status != 201:
            raise Refused(status)
        return reading

    def raw(self, words: str, *, buffer: int = 0) -> socket.socket:
        """A connection that has said this."""
        line = socket.socket()
        line.settimeout(SECONDS)
        if buffer:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        line.connect(("127.0.0.1", self.port))
        line.sendall(words.replace("HOST", self.place).encode())
        return line


class Refused(Exception):
    """An answer that is none of what was hoped for; busy, most often."""


def form(data: bytes, name: str) -> tuple[bytes, str]:
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + data + b"\r\n--x--\r\n", "multipart/form-data; boundary=x"


# ── looking ──


def predict(visit: Visit) -> str:
    kind = visit.chance.choice(["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
    return str(visit.sent(visit.encoded(kind))[0])


def predict_dicom(visit: Visit) -> str:
    return str(visit.sent(grey(visit.chance.randrange(64, 400)), "a.dcm")[0])


def sample(visit: Visit) -> str:
    return str(visit.said(f"/api/samples/{visit.chance.randrange(20)}")[0])


def huge(visit: Visit) -> str:
    """49 megapixels, which is allowed, or more, which is not; or more bytes than are accepted."""
    makers = (
        lambda: png(7_000, 7_000, kind=0),
        lambda: jpeg(3_000, 3_000),
        lambda: png(13_000, 13_000, kind=0),
        lambda: by_pillow("P", "GIF", 5_000, 5_000),
        lambda: bytes(21_000_000),
    )
    try:
        return str(visit.sent(visit.chance.choice(makers)())[0])
    except (BrokenPipeError, ConnectionResetError):
        return "refused while it was sent"


def broken(visit: Visit) -> str:
    whole = visit.encoded("PNG")
    makers = (
        lambda: whole[: visit.chance.randrange(1, len(whole))],
        lambda: visit.chance.randbytes(2_000),
        lambda: b"",
        lambda: b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 2**31) + b"IHDR",
        lambda: b"\0" * 128 + b"DICM" + visit.chance.randbytes(500),
    )
    return str(visit.sent(visit.chance.choice(makers)())[0])


def nonsense(visit: Visit) -> str:
    bodies = (b'{"prototypes": [NaN]}', b"{", b"[" * 5_000, b'{"label": "x"}', b"\xff\xfe")
    body = visit.chance.choice(bodies)
    return str(visit.asked("POST", "/api/images/unknown/places", body, "application/json")[0])


# ── asking ──


def what_if(visit: Visit) -> str:
    reading = visit.image()
    off = [row["prototype"] for row in reading["rows"][: visit.chance.randrange(1, 4)]]
    place = f"/api/images/{reading['image']}"
    visit.said(f"{place}/contrast", label=0, versus=1)
    visit.said("/api/what-if", off=off)
    return str(visit.said(f"{place}/evidence", off=off)[0])


def browse(visit: Visit) -> str:
    """The page, and the pictures that it shows."""
    number = visit.chance.randrange(10)
    paths = ["/", "/static/main.js", "/api/run", "/api/prototypes", "/api/gallery", "/healthz"]
    paths += [f"/api/prototypes/{number}/picture", f"/api/prototypes/{number}/place"]
    paths += [f"/api/samples/{number}/picture", f"/api/training/{number}/picture", "/api/samples?limit=60"]
    return " ".join(sorted({str(visit.asked("GET", path)[0]) for path in paths}))


# ── explaining ──


def _places(visit: Visit) -> tuple[dict, str]:
    reading = visit.image()
    wanted = [row["prototype"] for row in reading["rows"][: visit.chance.randrange(1, 3)]]
    status, job = visit.said(f"/api/images/{reading['image']}/places", prototypes=wanted)
    if status != 202:
        raise Refused(status)
    return reading, job["job"]


def _events(visit: Visit, job: str, *, most: int) -> str:
    """Read so many events, or all; the last state that was told."""
    line = http.client.HTTPConnection(visit.place, timeout=SECONDS)
    state, count, end = "", 0, time.monotonic() + SECONDS
    try:
        line.request("GET", f"/api/jobs/{job}/events")
        answer = line.getresponse()
        while count < most and time.monotonic() < end and (words := answer.readline()):
            if words.startswith(b"data: "):
                state, count = json.loads(words[6:])["state"], count + 1
        return state
    finally:
        line.close()


def explain(visit: Visit) -> str:
    """To the end, and everything that can be had then."""
    reading, job = _places(visit)
    state = _events(visit, job, most=10_000)
    if state == "done":
        place, number = f"/api/images/{reading['image']}", reading["rows"][0]["prototype"]
        for path in (
            f"/places/{number}",
            f"/places/{number}/image",
            f"/sheet?label={reading['label']}&top=1",
        ):
            visit.asked("GET", place + path)
    return state


def explain_class(visit: Visit) -> str:
    reading = visit.image()
    method = visit.chance.choice(["mdm", "gradcam", "nonsense"])
    status, job = visit.said(f"/api/images/{reading['image']}/maps", label=0, method=method)
    return _events(visit, job["job"], most=10_000) if status == 202 else str(status)


def abandon(visit: Visit) -> str:
    """Watch the first news, and go."""
    _, job = _places(visit)
    _events(visit, job, most=visit.chance.randrange(1, 3))
    return "gone"


def ignore(visit: Visit) -> str:
    """Open the events, never read them, and go some seconds later."""
    _, job = _places(visit)
    with visit.raw(f"GET /api/jobs/{job}/events HTTP/1.1\r\nHost: HOST\r\n\r\n", buffer=4096):
        time.sleep(visit.chance.uniform(1, 8))
    return "gone"


def cancel(visit: Visit) -> str:
    _, job = _places(visit)
    status, _ = visit.asked("DELETE", f"/api/jobs/{job}")
    return str(status)


# ── going ──


def hang_up(visit: Visit) -> str:
    """In the middle of a header, of a body, or before the answer."""
    body, kind = form(visit.encoded("PNG"), "a.png")
    head = (
        f"POST /api/images HTTP/1.1\r\nHost: HOST\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    )
    share = visit.chance.choice([0.0, 0.5, 1.0])
    with visit.raw(head + ("\r\n" if share else "X-Slow: ")) as line:
        line.sendall(body[: round(share * len(body))])
        time.sleep(visit.chance.uniform(0, 0.3))
        if visit.chance.random() < 0.5:  # with a reset instead of an end
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return "gone"


def wait_too_long(visit: Visit) -> str:
    """Half a header, then nothing: answered 408 in the end."""
    with visit.raw("GET / HTTP/1.1\r\nHost: HOST\r\nX-Slow: ") as line:
        return line.recv(100).decode("latin-1").partition(" ")[2][:3] or "closed"


CLIENTS: dict[Client, int] = {
    predict: 30,
    predict_dicom: 5,
    sample: 8,
    huge: 1,
    broken: 10,
    nonsense: 6,
    what_if: 10,
    browse: 8,
    explain: 4,
    explain_class: 3,
    abandon: 4,
    ignore: 2,
    cancel: 4,
    hang_up: 8,
    wait_too_long: 1,
}
