"""A black box warns about strange images as a DProtoNet does: trained, asked and explained by commands."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.data.birds import Birds

SETTINGS = {
    "--data": "birds",
    "--network": "blackbox",
    "--mode": "frozen",
    "--species": "3",
    "--train-per-species": "12",
    "--val-per-species": "4",
    "--test-per-species": "4",
    "--image-size": "64",
    "--epochs": "2",
    "--batch-size": "12",
}
WARNING = "careful: this image is unlike the training images"


@pytest.fixture(scope="module")
def black_box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("black") / "box"
    words = [word for pair in SETTINGS.items() for word in pair]
    assert main(["train", *words, "--out", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strangers") / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Twelve birds of its species that it has never seen."""
    folder = tmp_path_factory.mktemp("own")
    birds = Birds(species=3, per_species=4, split="test", size=64)
    for number in range(len(birds)):
        Image.fromarray(birds[number].image.permute(1, 2, 0).numpy()).save(folder / f"{number:02d}.png")
    return sorted(map(str, folder.iterdir()))


def predictions(run: Path, images: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict]:
    capsys.readouterr()
    assert main(["predict", str(run), *images, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["predictions"]


def test_predict_warns_before_the_class(
    black_box: Path, stranger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(stranger.parent)  # a short name, which no line breaks
    capsys.readouterr()
    assert main(["predict", str(black_box), stranger.name]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith(f"noise.png: {WARNING}")
    assert re.match(r"noise\.png: .+ \(.*\d %\)", second)  # the class
    (found,) = predictions(black_box, [str(stranger)], capsys)
    assert found["familiar"] is False
    assert found["distance"] > 1


def test_it_does_not_warn_of_its_own_kind(
    black_box: Path, own: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = predictions(black_box, own, capsys)
    assert len(found) == 12
    assert sum(item["familiar"] for item in found) >= 10


def test_saliency_warns_too(
    black_box: Path, stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["saliency", str(black_box), str(stranger), "--method", "gradcam", "--out", str(tmp_path)]
    assert main(words) == 0
    assert WARNING in capsys.readouterr().out
    (told,) = tmp_path.glob("*/explanation.json")
    assert json.loads(told.read_text("utf-8"))["familiar"] is False


def test_one_of_an_older_version_learns_to_warn(
    black_box: Path, stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its limits are then those that training sets."""
    run = tmp_path / "older"
    shutil.copytree(black_box, run, ignore=shutil.ignore_patterns("familiarity.*", "checkpoint"))
    (unknown,) = predictions(run, [str(stranger)], capsys)
    assert unknown["familiar"] is None
    assert main(["familiarity", str(run)]) == 0
    (wanted,) = predictions(black_box, [str(stranger)], capsys)
    (found,) = predictions(run, [str(stranger)], capsys)
    assert found["familiar"] is False
    assert found["distance"] == pytest.approx(
        wanted["distance"], rel=0.05
    )  # kept features have half precision
