"""A folder of images as tests want it, and what they ask of it."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dprotonet.data.base import Splits
from dprotonet.data.folder import folder_splits
from dprotonet.data.listed import ListedImages
from dprotonet.data.reading import Reading
from dprotonet.errors import UserError

_SHADES: Iterator[int] = count()


def paint(path: Path, *, seed: int | None = None) -> Path:
    """A small image unlike every other, unless the seed says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(next(_SHADES) if seed is None else (seed, 7))
    Image.fromarray(noise.integers(0, 256, (6, 9, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes, 10 training and 3 test images of each."""
    for name in ("robin", "tit"):
        for number in range(10):
            paint(tmp_path / "train" / name / f"{number}.png")
        for number in range(3):
            paint(tmp_path / "test" / name / f"{number}.png")
    return tmp_path


def scan(root: Path, **options: object) -> Splits:
    return folder_splits(root, Reading(size=8, **options))  # type: ignore[arg-type]


def names(data: object) -> list[str]:
    assert isinstance(data, ListedImages)
    return [data.name(index) for index in range(len(data))]


def refusal(root: Path, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        scan(root, **options)
    return str(caught.value)
