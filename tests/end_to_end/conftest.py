"""Folders of images that several commands are tried on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.end_to_end.prediction_tables import draw_photos

from dprotonet.data.birds import Birds
from dprotonet.experiment.trained.trained_model import TrainedModel


@pytest.fixture
def two_birds(tmp_path: Path) -> Path:
    """A folder of two images, 0.png and 1.png, without classes."""
    folder = tmp_path / "birds"
    folder.mkdir()
    birds = Birds(species=4, per_species=1, split="test", size=64)
    for number in range(2):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 images, three of which are broken in three ways."""
    return draw_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def stopped_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, type[BaseException]], None]:
    """The network fails in the batch of that number."""

    def plant(number: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        plain, calls = TrainedModel.answers_to, iter(range(10_000))

        def failing(model: TrainedModel, inputs: Any) -> Any:
            if next(calls) == number:
                raise kind("planted")
            return plain(model, inputs)

        monkeypatch.setattr(TrainedModel, "answers_to", failing)

    return plant
