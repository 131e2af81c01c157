"""One tiny trained run, served to all tests of the page and the API."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import dprotonet as dp
from conftest import tiny_config
from dprotonet.data.birds import Birds
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.web.app import create_app
from dprotonet.web.service import Service, ServiceSettings
from web_server import ENDLESS, HERE, QUICK, SMALL, png_of


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
