"""One tiny trained run, served to all tests of the page and the API, and a browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect, sync_playwright

import dprotonet as dp
from conftest import tiny_config
from dprotonet.data.birds import Birds
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.web.app import create_app
from dprotonet.web.service import Service, ServiceSettings
from web_server import ENDLESS, HERE, QUICK, SMALL, png_of, served

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 60_000  # milliseconds of patience: the machine may be busy


@pytest.fixture(scope="session")
def web_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of its own: explaining and reviewing leave files in the folder, and cleaning beside it."""
    folder = tmp_path_factory.mktemp("web")
    config = tiny_config(mode="frozen", epochs=2, last_layer_epochs=1, augmentations=1, push_images=2)
    for _ in Trainer(config, folder / "birds", cache=folder / "cache").run():
        pass
    return folder / "birds"


@pytest.fixture(scope="session")
def model(web_run: Path) -> dp.Model:
    return dp.load(web_run)


@pytest.fixture(scope="session")
def service(model: dp.Model) -> Iterator[Service]:
    found = Service(model, ServiceSettings(limits=SMALL, preset=QUICK))
    yield found
    found.close()


@pytest.fixture(scope="session")
def client(service: Service) -> TestClient:
    """Without its lifespan, which would close the service."""
    return TestClient(create_app(service), base_url=HERE)


@pytest.fixture(scope="session")
def endless(model: dp.Model) -> Iterator[Service]:
    """A service whose decoder never comes to an end by itself, with room for one more task."""
    found = Service(model, ServiceSettings(preset=ENDLESS, explanations_waiting=1))
    yield found
    found.close()


@pytest.fixture(scope="session")
def bird() -> bytes:
    """A bird of the test data as a PNG file."""
    return png_of(Birds(species=4, per_species=3, split="test", size=64)[1].image)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("no browser: .ci/run installs chromium")
    if found is None:
        pytest.skip("no browser here: install chromium to test the page")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that must not complain: neither of scripts nor of the content policy."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(SECONDS)
    expect.set_options(timeout=SECONDS)
    opened, complaints = context.new_page(), []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    yield opened
    context.close()
    assert [text for text in complaints if "Failed to load resource" not in text] == []  # a refused upload


@pytest.fixture(scope="session")
def bird_file(bird: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("upload") / "bird.png"
    path.write_bytes(bird)
    return path


@pytest.fixture(scope="session")
def address(service: Service) -> Iterator[str]:
    with served(service) as found:
        yield found
