"""Folders of images that several commands are tried on."""

from pathlib import Path

import pytest
from PIL import Image

from dprotonet.data.birds import Birds


@pytest.fixture
def two_birds(tmp_path: Path) -> Path:
    """A folder of two images, 0.png and 1.png, without classes."""
    folder = tmp_path / "birds"
    folder.mkdir()
    birds = Birds(species=4, per_species=1, split="test", size=64)
    for number in range(2):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number}.png")
    return folder
