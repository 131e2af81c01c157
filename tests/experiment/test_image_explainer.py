"""`dp.explainer`: a network by any of its names, images in any form, explanations that save themselves."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import dprotonet as dp
from dprotonet.errors import UserError

QUICK = {"method": "gradcam"}


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    image = dp.Birds(per_species=1, split="test", size=64)[0].image
    return image.permute(1, 2, 0).numpy()


@pytest.fixture(scope="module")
def explain(run_folder: Path) -> dp.ImageExplainer:
    return dp.explainer(run_folder, **QUICK)


def test_the_same_image_in_every_form(explain: dp.ImageExplainer, pixels: np.ndarray, tmp_path: Path) -> None:
    path, picture = tmp_path / "bird.png", Image.fromarray(pixels)
    picture.save(path)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    forms: list[Any] = [path, str(path), picture, pixels, tensor, [path], pixels[None], np.array([str(path)])]
    found = [explain(form) for form in forms]
    assert [len(one) for one in found] == [1] * len(forms)
    for (one,) in found[1:]:
        assert one.class_name == found[0][0].class_name
        torch.testing.assert_close(one.heatmap, found[0][0].heatmap)


def test_grey_and_several(explain: dp.ImageExplainer, pixels: np.ndarray) -> None:
    grey = np.ascontiguousarray(pixels[..., 0])
    assert len(explain(grey)) == 1
    assert len(explain(np.stack([grey, grey]))) == 2
    assert len(explain([grey, pixels, Image.fromarray(pixels)])) == 3


def test_it_is_what_saliency_says(explain: dp.ImageExplainer, run_folder: Path, pixels: np.ndarray) -> None:
    picture = Image.fromarray(pixels)
    (expected,) = dp.saliency(run_folder, picture, **QUICK)
    (found,) = explain(picture)
    assert found.class_name == expected.class_name == explain.classes[found.label]
    torch.testing.assert_close(found.heatmap, expected.heatmap)


def test_it_saves_itself(explain: dp.ImageExplainer, pixels: np.ndarray, tmp_path: Path) -> None:
    (found,) = explain(pixels, target=explain.classes[1])
    assert found.save(tmp_path / "why") == tmp_path / "why"
    said = json.loads((tmp_path / "why" / "explanation.json").read_text())
    assert said["class_name"] == explain.classes[1]
    assert said["method"] == "gradcam"
    assert (tmp_path / "why" / "sheet.png").is_file()
    assert np.load(tmp_path / "why" / said["files"]["heatmap"]).shape == (64, 64)


def test_a_timm_network_with_names(pixels: np.ndarray) -> None:
    explain = dp.explainer("timm:test_resnet:none", **QUICK, classes=[f"kind {n}" for n in range(1000)])
    (found,) = explain(pixels)
    assert found.class_name == f"kind {found.label}"


def test_a_model_that_is_open(run_folder: Path, pixels: np.ndarray) -> None:
    (found,) = dp.explainer(dp.load(run_folder), **QUICK)(pixels)
    assert found.class_name in dp.load(run_folder).classes


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("nowhere", {}, "does not exist"),
    ("timm:test_resnet:none", {"revision": "v1"}, "has no revisions"),
    ("timm:test_resnet:none", {"method": "crystal ball"}, "crystal ball"),
    (3, {}, "not int"),
]


@pytest.mark.parametrize(("name", "settings", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_networks_that_are_none(name: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dp.explainer(name, **settings)


WRONG = {
    "floats": np.zeros((8, 8, 3)),
    "a table": np.zeros((2, 8, 8, 7), dtype=np.uint8),
    "five axes": np.zeros((1, 2, 8, 8, 3), dtype=np.uint8),
    "nothing": np.zeros((0, 8, 3), dtype=np.uint8),
}


@pytest.mark.parametrize("array", WRONG.values(), ids=WRONG)
def test_arrays_that_are_no_images(array: np.ndarray, explain: dp.ImageExplainer) -> None:
    with pytest.raises(UserError, match=r"array"):
        explain(array)
