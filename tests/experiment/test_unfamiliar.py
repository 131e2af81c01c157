"""An image unlike all that a run knows: every picture, command and page says so, in the same words."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.explaining.evidence_picture import evidence_picture
from dprotonet.experiment.explaining.explain import ExplainedPrediction
from dprotonet.experiment.runs.familiarity import FILE, Familiarity, prototypes_digest, warning_of
from dprotonet.figures.style import CAUTION
from dprotonet.report.cases import Places, case, studied

NOISE = torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def strict(run_folder: Path, tmp_path: Path) -> Path:
    """A run to which every image is strange."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder, ignore=shutil.ignore_patterns("checkpoint"))
    Familiarity(1e-3, 0.05, 40, prototypes_digest(dp.load(folder).prototyped)).write(folder)
    return folder


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    path = tmp_path / "noise.png"
    Image.fromarray(NOISE.permute(1, 2, 0).numpy()).save(path)
    return path


def amber(picture: Image.Image) -> bool:
    return bool((np.asarray(picture) == ImageColor.getrgb(CAUTION)).all(axis=-1).any())


@pytest.mark.parametrize(("distance", "told"), [(1.17, True), (0.9, False), (None, False)])
def test_pictures_of_a_prediction_say_it(run_folder: Path, distance: float | None, told: bool) -> None:
    model = dp.load(run_folder)
    prediction = replace(model.predict(NOISE), distance=distance)
    assert amber(evidence_picture(model, NOISE, prediction)) is told
    pixels = model.pixels(NOISE)
    size = (pixels.shape[-2], pixels.shape[-1])
    assert amber(ExplainedPrediction(pixels, prediction, (), size).picture()) is told


def test_saliency_says_it(
    strict: Path, noise: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["saliency", str(strict), str(noise), "--method", "gradcam", "--out", str(tmp_path / "out")]
    wanted = dp.load(strict).predict(noise)
    assert main(asked) == 0
    assert warning_of(wanted.distance) in capsys.readouterr().out
    saved = json.loads((tmp_path / "out" / "0000-noise" / "explanation.json").read_text())
    assert saved["familiar"] is False
    assert saved["distance"] == pytest.approx(wanted.distance)
    assert saved["probability"] == pytest.approx(wanted.probability)
    assert amber(Image.open(tmp_path / "out" / "sheet.png"))
    (strict / FILE).unlink()
    assert main(asked) == 0
    assert "careful" not in capsys.readouterr().out
    assert not amber(Image.open(tmp_path / "out" / "sheet.png"))


def test_a_card_of_the_report_says_it(strict: Path) -> None:
    model = dp.load(strict)
    test = build_splits(model.config.data).test
    (item,) = studied(model, test, [0])
    told = case(model, item, Places({}, {}), None, top=1).warning
    assert told == f"C{warning_of(item.prediction.distance)[1:]}."
    model.familiarity = None
    (item,) = studied(model, test, [0])
    assert case(model, item, Places({}, {}), None, top=1).warning == ""
