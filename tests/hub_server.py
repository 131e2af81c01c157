"""A stand-in for the Hugging Face hub on this machine: the routes that huggingface_hub asks, and no more.

Repositories are in memory: commits by branch, files by path. A private one is there for who has the token.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
Files = dict[str, bytes]


@dataclass
class Repository:
    private: bool = False
    gated: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Files, branch: str = "main") -> str:
        """A new commit on a branch; what it had stays."""
        before = self.commits.get(self.branches.get(branch, ""), {})
        whole = {**before, **files}
        number = len(self.commits).to_bytes(4, "big")
        oid = hashlib.sha1(number + b"".join(sorted(whole.values()))).hexdigest()
        self.commits[oid], self.branches[branch] = whole, oid
        return oid


@dataclass
class Hub:
    """What the server knows, and what it was asked."""

    endpoint: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    blobs: Files = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cut: str = ""  # a file whose download ends half-way
    failing: int = 0  # a status for every upload, as of a hub that is ill


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_HEAD(self) -> None:
        self._get()

    def do_GET(self) -> None:
        self._get()

    def do_PUT(self) -> None:
        content, path = self._content(), urlsplit(self.path).path
        self.hub.blobs[path.removeprefix("/lfs/")] = content
        self._answer({})

    def do_POST(self) -> None:
        content, path = self._content(), unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"POST {path}")
        if self.hub.failing:
            return self._refuse(self.hub.failing, "")
        if path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        if not self._known():
            return self._refuse(401, "")
        if path == "/api/repos/create":
            return self._create(json.loads(content))
        if found := re.fullmatch(r"/api/models/(.+?)/preupload/(.+)", path):
            return self._preupload(json.loads(content))
        if found := re.fullmatch(r"/api/models/(.+?)/branch/(.+)", path):
            repository = self.hub.repositories[found[1]]
            repository.branches.setdefault(found[2], repository.branches.get("main", ""))
            return self._answer({})
        if re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            return self._batch(json.loads(content))
        if found := re.fullmatch(r"/api/models/(.+?)/commit/(.+)", path):
            return self._commit(found[1], found[2], content)
        return self._refuse(404, "")

    # ── reading ──

    def _get(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        if path == "/":
            return self._answer({})
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path) or re.fullmatch(
            r"/([^/]+/[^/]+)/(resolve)/([^/]+)/(.+)", path
        )
        if found is None:
            return self._refuse(404, "")
        repository = self.hub.repositories.get(found[1])
        if repository is None or (repository.private and not self._known()):
            return self._refuse(401, "RepoNotFound")
        if repository.gated:
            return self._refuse(403, "GatedRepo")
        revision = found[3] or "main"
        oid = repository.branches.get(revision, revision)
        if oid not in repository.commits:
            return self._refuse(404, "RevisionNotFound")
        files = repository.commits[oid]
        if found[2] == "resolve":
            return self._file(files, found[4], oid)
        if found[2] == "tree":
            return self._answer([_entry(name, data) for name, data in files.items()])
        siblings = [{"rfilename": name} for name in files]
        return self._answer({"id": found[1], "sha": oid, "siblings": siblings, "private": False, "tags": []})

    def _file(self, files: Files, name: str, oid: str) -> None:
        if name not in files:
            return self._refuse(404, "EntryNotFound")
        data = files[name]
        headers = {"ETag": f'"{_etag(name, data)}"', "X-Repo-Commit": oid}
        self._send(200, data, headers, cut=name == self.hub.cut)

    # ── writing ──

    def _create(self, asked: dict[str, Any]) -> None:
        name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
        if name.startswith("others/"):
            return self._refuse(403, "")
        private = bool(asked.get("private"))
        if name in self.hub.repositories:
            return self._refuse(409, "", {"url": f"{self.hub.endpoint}/{name}"})
        self.hub.repositories[name] = Repository(private=private)
        return self._answer({"url": f"{self.hub.endpoint}/{name}", "name": name, "id": "1"})

    def _preupload(self, asked: dict[str, Any]) -> None:
        modes = [
            {"path": one["path"], "uploadMode": _mode(one["path"]), "shouldIgnore": False, "oid": None}
            for one in asked["files"]
        ]
        self._answer({"files": modes})

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{one['oid']}"}}}
            for one in asked["objects"]
        ]
        self._answer({"transfer": "basic", "objects": objects})

    def _commit(self, name: str, branch: str, content: bytes) -> None:
        files = {}
        for line in map(json.loads, content.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
        oid = self.hub.repositories[name].commit(files, branch)
        url = f"{self.hub.endpoint}/{name}/commit/{oid}"
        self._answer({"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    # ── HTTP ──

    def _known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _content(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, content: object = None) -> None:
        headers = {"X-Error-Code": code} if code else {}
        body = json.dumps(content or {}).encode()
        self._send(status, body, {"Content-Type": "application/json", **headers})

    def _send(self, status: int, data: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True


def _mode(name: str) -> str:
    return "lfs" if name.endswith((".safetensors", ".png")) else "regular"


def _etag(name: str, data: bytes) -> str:
    if _mode(name) == "lfs":
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _entry(name: str, data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "file",
        "path": name,
        "size": len(data),
        "oid": hashlib.sha1(data).hexdigest(),
    }
    if _mode(name) == "lfs":
        entry["lfs"] = {"oid": _etag(name, data), "size": len(data), "pointerSize": 100}
    return entry
