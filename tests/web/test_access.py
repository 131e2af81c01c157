"""Who is let in: names, pages from elsewhere, tokens, one-time links; and what browsers are told."""

import re

import pytest
from fastapi.testclient import TestClient

from dprotonet.errors import UserError
from dprotonet.web.access import Access
from dprotonet.web.app import create_app
from dprotonet.web.service import Service
from web_server import HERE

TOKEN = "correct horse battery"


@pytest.fixture
def door() -> Access:
    return Access(host="0.0.0.0", token=TOKEN, names=["scans.example.org"])


@pytest.fixture
def locked(service: Service, door: Access) -> TestClient:
    return TestClient(create_app(service, door), base_url=HERE)


def test_beyond_this_machine_a_token_is_needed() -> None:
    with pytest.raises(UserError, match="--token"):
        Access(host="0.0.0.0")
    with pytest.raises(UserError, match="5 characters"):
        Access(host="0.0.0.0", token="short")
    for host in ("127.0.0.1", "localhost", "::1"):
        assert Access(host=host).admits("", "")


@pytest.mark.parametrize(
    ("header", "local", "open_"),
    [
        ("127.0.0.1:8000", True, True),
        ("localhost", True, True),
        ("[::1]:8000", True, True),
        ("evil.example.com", False, False),
        ("127.0.0.1.evil.example.com", False, False),
        ("evil.example.com:127", False, False),
        ("192.168.1.7:8000", False, True),  # a number cannot be rebound
        ("scans.example.org", False, True),
        ("", False, False),
        ("[", False, False),
    ],
)
def test_names_it_answers_to(header: str, local: bool, open_: bool, door: Access) -> None:
    assert Access().answers_to(header) == local
    assert door.answers_to(header) == open_


def test_other_names_are_refused(client: TestClient) -> None:
    for path in ("/", "/healthz", "/api/run", "/static/main.js"):
        assert client.get(path, headers={"Host": "rebound.example.com"}).status_code == 421
        assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example.com"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:9000"},
    ],
)
def test_other_pages_change_nothing(client: TestClient, headers: dict[str, str]) -> None:
    before = client.get("/api/cleaned").json()
    for path, sent in (("/api/what-if", {"off": []}), ("/api/cleaned", {"reasons": {"3": "other"}})):
        assert client.post(path, json=sent, headers=headers).status_code == 403
    assert client.get("/api/cleaned").json() == before


def test_the_own_page_may(client: TestClient) -> None:
    headers = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/samples/0", headers=headers).status_code == 201


def test_token_by_header(locked: TestClient) -> None:
    for given in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
        answer = locked.get("/api/run", headers={"Authorization": given.encode()})
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert locked.get("/api/run", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert locked.get("/healthz").status_code == 200
    for path in ("/", "/static/main.js", "/api", "/api/images/x/picture", "/api/gallery", "/api/cleaned"):
        assert locked.get(path).status_code == 401


def test_a_link_opens_the_door_once(locked: TestClient, door: Access) -> None:
    link = door.new_link()
    answer = locked.get(link, follow_redirects=False)
    assert answer.status_code == 303
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["Set-Cookie"].split("; "))
    assert TOKEN not in answer.headers["Set-Cookie"]
    assert locked.get("/api/run").status_code == 200  # by the cookie
    locked.cookies.clear()
    assert locked.get(link).status_code == 403
    assert locked.get("/enter/nonsense").status_code == 403
    assert locked.get("/api/run", headers={"Cookie": "dprotonet=guessed"}).status_code == 401


def test_who_is_in_may_let_others_in(locked: TestClient) -> None:
    assert locked.post("/api/links").status_code == 401
    path = locked.post("/api/links", headers={"Authorization": f"Bearer {TOKEN}"}).json()["path"]
    assert locked.get(path, follow_redirects=False).status_code == 303


def test_what_browsers_are_told(client: TestClient) -> None:
    for path in ("/", "/api/run", "/static/main.js", "/nowhere"):
        headers = client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "Access-Control-Allow-Origin" not in headers


def test_the_page_is_whole_and_has_nothing_inline(client: TestClient) -> None:
    page = client.get("/").text
    assert "<script>" not in page
    assert "style=" not in page
    assert " on" + "click" not in page
    assert "//" not in page.replace("<!doctype html>", "")  # nothing from elsewhere
    for name in re.findall(r"/static/([\w.]+)", page):
        assert client.get(f"/static/{name}").status_code == 200
