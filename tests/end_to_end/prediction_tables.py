"""Tables of `dprotonet predict --out FILE.csv`, as several tests ask for them and read them."""

import csv
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dprotonet.data.birds import Birds
from dprotonet.experiment.trained.trained_model import TrainedModel

COUNT, BATCH = 50, 8
BROKEN = (0, 17, 49)


def draw_photos(folder: Path) -> Path:
    """50 images, three of which are broken in three ways."""
    birds = Birds(species=4, per_species=4, split="test", size=64)
    for number in range(COUNT):
        bird = birds[number % len(birds)].image.roll(number, dims=2)  # no two alike
        path = folder / f"day {number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(bird.permute(1, 2, 0).numpy()).save(path)
    whole = (folder / "day 0" / "48.png").read_bytes()
    for number, content in zip(BROKEN, (b"", b"no image at all", whole[: len(whole) // 2]), strict=True):
        next(folder.rglob(f"{number:02d}.png")).write_bytes(content)
    return folder


def words(run: Path, photos: Path, out: Path, *more: str) -> list[str]:
    return ["predict", str(run), str(photos), "--out", str(out), "--batch-size", str(BATCH), *more]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that the network is asked about from now on."""
    plain, looked = TrainedModel.answers_to, []

    def counting(model: TrainedModel, inputs: Any) -> Any:
        looked.append(len(inputs))
        return plain(model, inputs)

    monkeypatch.setattr(TrainedModel, "answers_to", counting)
    return looked
