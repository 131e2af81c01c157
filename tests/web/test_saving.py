"""A cleaned run is saved whether or not anybody watches; when the server stops, half of one is not kept."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect

import dprotonet as dp
from dprotonet.experiment.prototypes.cleaning import Cleaning, clean
from dprotonet.web.app import create_app
from dprotonet.web.job import Job
from dprotonet.web.service import Service, ServiceSettings
from web_server import HERE, QUICK, SMALL, served, until

OFF = {"reasons": {"3": "background"}}


@pytest.fixture
def run(web_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(web_run, tmp_path / "birds")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The last layer learns, but after its epoch waits here; opened at the end in any case."""
    opened = threading.Event()

    def slow(*given: Any, on_epoch: Callable[[int, int], None], **named: Any) -> Cleaning:
        def wait(done: int, total: int) -> None:
            on_epoch(done, total)
            opened.wait(60)
            on_epoch(done, total)

        return clean(*given, on_epoch=wait, **named)

    monkeypatch.setattr("dprotonet.web.saving.clean", slow)
    yield opened
    opened.set()


@pytest.fixture
def saver(run: Path) -> Iterator[Service]:
    found = Service(dp.load(run), ServiceSettings(limits=SMALL, preset=QUICK))
    yield found
    found.close()


@pytest.fixture
def api(saver: Service) -> TestClient:
    return TestClient(create_app(saver), base_url=HERE)


def state(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/cleaned").json()
    return found


def learning(client: TestClient) -> bool:
    job = state(client)["job"]
    return bool(job and job["step"] == "the last layer learns again" and job["done"])


def test_it_is_told_from_the_beginning_to_the_folder(
    api: TestClient, run: Path, gate: threading.Event
) -> None:
    assert state(api) == {"job": None, "off": []}
    job = api.post("/api/cleaned", json=OFF).json()["job"]
    until(lambda: learning(api))
    found = state(api)
    assert (found["job"]["job"], found["job"]["state"], found["off"]) == (job, "running", [3])
    assert (found["job"]["done"], found["job"]["total"]) == (1, 1)
    gate.set()
    until(lambda: state(api)["job"]["state"] == "done")
    result = state(api)["job"]["result"]
    assert Path(result["path"]) == run.resolve().with_name("birds-cleaned") / "001"
    assert len(dp.load(result["path"]).prototypes) == 7
    assert "Saved as birds-cleaned/001: 7 prototypes left, validation accuracy" in result["words"]


def test_two_tabs_save_once(api: TestClient, run: Path, gate: threading.Event) -> None:
    first, second = (api.post("/api/cleaned", json=OFF) for _ in range(2))
    assert first.json()["job"] == second.json()["job"]
    other = api.post("/api/cleaned", json={"reasons": {"4": "other"}})
    assert other.status_code == 409
    assert "another cleaned run is being saved" in other.json()["detail"]
    gate.set()
    until(lambda: state(api)["job"]["state"] == "done")
    assert [path.name for path in run.with_name("birds-cleaned").iterdir()] == ["001"]
    again = api.post("/api/cleaned", json=OFF).json()["job"]  # done is done: this is a new wish
    assert again != first.json()["job"]
    until(lambda: state(api)["job"]["state"] == "done")


def test_a_watcher_who_leaves_does_not_end_it(saver: Service, api: TestClient, gate: threading.Event) -> None:
    key = api.post("/api/cleaned", json=OFF).json()["job"]
    job = saver.job(key)
    job.join()
    job.leave()
    until(lambda: job.state == "running")
    job._left_at -= 3600  # an hour ago
    assert job.wanted()
    for _ in range(saver.settings.jobs):  # so many others that it is no longer among the latest
        saver.jobs.add(Job())
    assert saver.jobs.find(key) is None
    assert api.get(f"/api/jobs/{key}").json()["state"] == "running"
    gate.set()
    until(lambda: state(api)["job"]["state"] == "done")


def test_cancelled_it_leaves_nothing(api: TestClient, run: Path, gate: threading.Event) -> None:
    job = api.post("/api/cleaned", json=OFF).json()["job"]
    until(lambda: learning(api))
    api.delete(f"/api/jobs/{job}")
    gate.set()
    until(lambda: state(api)["job"]["state"] == "cancelled")
    assert not run.with_name("birds-cleaned").exists()


def test_a_stopped_server_leaves_nothing(
    run: Path, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(dp.load(run), ServiceSettings(limits=SMALL, preset=QUICK))
    client = TestClient(create_app(service), base_url=HERE)
    client.post("/api/cleaned", json=OFF)
    until(lambda: learning(client))
    threading.Timer(0.3, gate.set).start()
    service.close()
    assert not run.with_name("birds-cleaned").exists()
    assert "stopped before the cleaned run was saved" in caplog.text


def test_what_a_killed_server_left_goes_with_the_next_saving(api: TestClient, run: Path) -> None:
    left = run.with_name("birds-cleaned") / ".001.0123456789ab.tmp"
    left.mkdir(parents=True)
    (left / "config.toml").write_text("half")
    api.post("/api/cleaned", json=OFF)
    until(lambda: state(api)["job"]["state"] == "done")
    assert [path.name for path in left.parent.iterdir()] == ["001"]


def test_a_place_that_cannot_be_written_to_is_a_sentence(api: TestClient, run: Path) -> None:
    run.with_name("birds-cleaned").write_text("a file, where a folder should be")
    api.post("/api/cleaned", json=OFF)
    until(lambda: state(api)["job"]["state"] == "failed")
    message = state(api)["job"]["message"]
    assert "birds-cleaned cannot be written to" in message


# ── in a browser ──


@pytest.fixture
def address(saver: Service) -> Iterator[str]:
    with served(saver) as found:
        yield found


def switch_off(page: Page, address: str) -> None:
    page.goto(f"{address}/#prototypes")
    page.get_by_role("button", name="Prototype 3 of").click()
    page.locator("#dialog").get_by_role("button", name="background").click()
    page.keyboard.press("Escape")


def test_a_closed_page_does_not_end_it(
    browser: Browser, page: Page, address: str, run: Path, gate: threading.Event
) -> None:
    switch_off(page, address)
    page.locator("#whatif-save").click()
    expect(page.locator("#saving")).to_contain_text("the last layer learns again, 1 of 1")
    expect(page.locator("#whatif-save")).to_be_disabled()
    second = page.context.new_page()
    second.goto(address)  # another tab knows of it as well
    expect(second.locator("#saving")).to_contain_text("Saving a run without 1 prototype (#3)")
    second.close()
    page.goto("about:blank")
    page.wait_for_timeout(3500)  # longer than the patience with which other work is given up
    gate.set()
    page.goto(address)
    expect(page.locator("#saving-words")).to_contain_text("Saved as birds-cleaned/001")
    expect(page.locator("#saving-path")).to_have_text(str(run.resolve().with_name("birds-cleaned") / "001"))
    page.locator("#saving-close").click()
    page.reload()
    expect(page.locator("#run")).to_contain_text("8 prototypes")
    expect(page.locator("#saving")).to_be_hidden()  # it was read


def test_cancelled_on_the_page(page: Page, address: str, run: Path, gate: threading.Event) -> None:
    switch_off(page, address)
    page.locator("#whatif-save").click()
    expect(page.locator("#saving")).to_contain_text("the last layer learns again")
    page.locator("#saving-cancel").click()
    gate.set()
    expect(page.locator("#saving")).to_contain_text("cancelled; nothing was written")
    expect(page.locator("#whatif-save")).to_be_enabled()
    assert not run.with_name("birds-cleaned").exists()


def test_a_server_that_stops_meanwhile_is_told(page: Page, saver: Service, gate: threading.Event) -> None:
    with served(saver) as address:
        switch_off(page, address)
        page.locator("#whatif-save").click()
        expect(page.locator("#saving")).to_contain_text("the last layer learns again")
    expect(page.locator("#saving")).to_contain_text("connection to the server was lost")
