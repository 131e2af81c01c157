"""Requests to the API, in process: paths, queries, JSON, forms and headers, none of which may give a 500."""

import asyncio
import json
import random
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from PIL import Image
from tests.fuzz.mutation import mutated, odd_json
from tests.fuzz.target import Case, Unexpected
from tests.fuzz.targets.image_files import seeds
from tests.fuzz.targets.material import tiny_run

import dprotonet as dp
from dprotonet.data.upload import UploadLimits
from dprotonet.errors import UserError
from dprotonet.experiment.model import Model
from dprotonet.web.app import create_app
from dprotonet.web.service import Service, ServiceSettings

_POSTS: dict[str, Any] = {
    "/api/images/KEY/evidence": {"label": 1, "off": [0], "top": 3},
    "/api/images/KEY/contrast": {"label": 0, "versus": 1, "off": [], "top": 5},
    "/api/images/KEY/places": {"prototypes": [0, 1]},
    "/api/images/KEY/maps": {"label": 1, "versus": 0, "method": "similarity"},
    "/api/prototypes/1/name": {"name": "beak"},
    "/api/what-if": {"off": [0, 1]},
    "/api/cleaned": {"reasons": {"x": "why"}},
    "/api/samples/0": {},
    "/api/links": {},
}
_GETS = (
    *("/api/run", "/api/samples", "/api/samples?label=1&offset=0&limit=3", "/api/samples/1/picture", "/api"),
    *("/api/training/1/picture", "/api/prototypes", "/api/prototypes/1/place", "/api/prototypes/1/source"),
    *("/api/gallery", "/api/jobs/x", "/api/cleaned", "/api/images/KEY/picture", "/healthz", "/", "/enter/x"),
    *(
        "/api/images/KEY/sheet?label=1&top=2&off=0",
        "/api/images/KEY/places/0/image",
        "/api/images/KEY/places/0",
    ),
    *(
        "/api/images/KEY/places/0",
        "/api/images/KEY/maps/1/similarity?versus=0",
        "/static/page.js",
        "/static/../app.py",
    ),
)
_WORDS = (
    "-1",
    "1e3",
    "٣",
    "99999999999999999999",
    "nan",
    "%00",
    "%ff",
    "..",
    "x" * 100,
    "",
    "true",
    "1_0",
    " 1",
    "½",
)
_HEADERS = (
    *(("origin", "http://["), ("origin", "null"), ("host", "["), ("host", "evil"), ("content-type", "x")),
    *(("content-length", "٣"), ("content-length", "-1"), ("authorization", "Bearer \xff"), ("cookie", "=;=")),
    *(("content-type", "multipart/form-data"), ("content-type", "multipart/form-data; boundary=")),
    *(("sec-fetch-site", "x"), ("accept-encoding", "\xff"), ("range", "bytes=-9-"), ("host", "127.0.0.1:٣")),
)


class Api:
    """One service of a tiny run; heatmaps take milliseconds and their jobs end by themselves."""

    def __init__(self, place: Path) -> None:
        run = self.run = place / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(tiny_run(place), run, ignore=shutil.ignore_patterns("checkpoint"))
        preset = dp.preset("fast", iterations=1, zoom=1.0)
        settings = ServiceSettings(limits=UploadLimits(0.2, 0.5), preset=preset)
        self.service = Service(Model.load(run), settings)
        self.app, self.loop = create_app(self.service), asyncio.new_event_loop()
        self.images = [data for found in seeds().values() for data in found]
        pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / "bird.png")
        self.bird, self.key = (place / "bird.png").read_bytes(), ""

    def draw(self, generator: random.Random) -> Case:
        draw = generator.random()
        if draw < 0.15:
            data = mutated(generator, generator.choice(self.images), self.images)
            name = generator.choice(("x.png", "", "../x", "x\0.png", "٣.dcm", "a" * 500))
            return _case("upload", "POST", "/api/images", {}, data, name)
        headers = dict([generator.choice(_HEADERS)]) if generator.random() < 0.2 else {}
        if draw < 0.55:
            path = generator.choice(list(_POSTS))
            body = odd_json(generator, json.dumps(_POSTS[path]))
            headers = {"content-type": "application/json", **headers}
            return _case("json", "POST", _odd_path(generator, path, often=0.2), headers, body)
        if draw < 0.92:
            return _case("get", "GET", _odd_path(generator, generator.choice(_GETS), often=0.8), headers, b"")
        method = generator.choice(("PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "X"))
        path = generator.choice((*_GETS, *_POSTS, "/api/jobs/x"))
        return _case("other method", method, _odd_path(generator, path, often=0.3), headers, b"{}")

    def feed(self, case: Case) -> None:
        told = json.loads(case.content)
        body, path = bytes.fromhex(told["body"]), told["path"].replace("KEY", self._known())
        headers = dict(told["headers"])
        if case.kind == "upload":
            headers, body = _form(told["name"], body)
        status = self._answer(told["method"], path, headers, body)[0]
        if status >= 500 and status != 503:
            raise Unexpected(f"{told['method']} {told['path'].split('?')[0][:40]} gives {status}")
        if status >= 400:
            raise UserError(f"status {status}")

    def _known(self) -> str:
        """An image that the server knows; it forgets the oldest."""
        if not self.key or self.service.images.find(self.key) is None:
            headers, body = _form("bird.png", self.bird)
            self.key = json.loads(self._answer("POST", "/api/images", headers, body)[1])["image"]
        return self.key

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body, by ASGI as a server calls it; then the client goes away."""
        raw, _, query = quote(path, safe="/?&=%.~", errors="surrogatepass").partition("?")
        given = {"host": "127.0.0.1:8000", "content-length": str(len(body)), **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(n.encode("latin-1"), v.encode("utf-8", "replace")) for n, v in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        self.loop.run_until_complete(self.app(scope, receive, send))  # type: ignore[arg-type]
        started = [one["status"] for one in sent if one["type"] == "http.response.start"]
        return (started or [0])[0], b"".join(one.get("body", b"") for one in sent)

    def left(self) -> Iterable[str]:
        many = [f"{threading.active_count()} threads"] if threading.active_count() > 40 else []
        return [*many, *(path.name for path in self.run.glob("*.tmp"))]


def _form(name: str, data: bytes) -> tuple[dict[str, str], bytes]:
    """A form with one file."""
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return {"content-type": "multipart/form-data; boundary=x"}, head.encode() + data + b"\r\n--x--\r\n"


def _case(kind: str, method: str, path: str, headers: dict[str, str], body: bytes, name: str = "") -> Case:
    told = {"method": method, "path": path, "headers": headers, "body": body.hex(), "name": name}
    return Case(kind, json.dumps(told).encode())


def _odd_path(generator: random.Random, path: str, *, often: float) -> str:
    """Another word in place of a number, a key or a value of the query."""
    if generator.random() > often:
        return path
    path, mark, query = path.partition("?")
    if mark and generator.random() < 0.6:
        pairs = query.split("&")
        at = generator.randrange(len(pairs))
        pairs[at] = f"{pairs[at].split('=')[0]}={generator.choice(_WORDS)}"
        return f"{path}?{'&'.join(pairs)}"
    words = path.split("/")
    words[generator.randrange(1, len(words))] = generator.choice(_WORDS)
    return "/".join(words) + mark + query
