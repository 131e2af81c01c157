"""What an explanation can do by itself: a box, pictures, files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dprotonet.interpretation.base import Explanation, Passes


def planted() -> Explanation:
    """Two hot rectangles on a cold ground, the second a little less hot."""
    raw = torch.zeros(10, 20)
    raw[2:4, 5:15], raw[6:8, 1:11] = 2.0, 1.0
    image = torch.linspace(-2, 2, 600).reshape(3, 10, 20)
    loss = (0.5, 0.25)
    facts = {"preset": "fast", "settings": {"sizes": (6,)}}
    return Explanation(raw / 2, raw, {6: torch.rand(6, 6)}, loss, Passes(7, 5), "<wing> & tail", image, facts)


@pytest.mark.parametrize(
    ("share", "box"),
    [
        (0.1, (5, 2, 15, 4)),
        (0.2, (1, 2, 15, 8)),
        (0.05, (5, 2, 15, 3)),
        (1e-9, (5, 2, 6, 3)),
        (1, (0, 0, 20, 10)),
    ],
)
def test_a_box_goes_round_the_hottest_pixels(share: float, box: tuple[int, ...]) -> None:
    assert planted().box(share=share) == box


@pytest.mark.parametrize(
    ("onto", "box"),
    [
        ((10, 20), (1, 2, 15, 8)),
        ((20, 3000), (150, 4, 2250, 16)),
        ((3, 7), (0, 0, 6, 3)),  # outwards: never less than the place itself, never beyond the image
        ((1, 1), (0, 0, 1, 1)),
    ],
)
def test_a_box_is_stretched_as_the_image_is(onto: tuple[int, int], box: tuple[int, ...]) -> None:
    assert planted().box().stretched((10, 20), onto) == box


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_a_share_of_the_pixels_is_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="share of the pixels"):
        planted().box(share=share)


def test_overlays_are_pictures_of_the_images_size() -> None:
    own, other = planted().overlay(), planted().overlay(torch.zeros(3, 10, 20, dtype=torch.uint8))
    assert own.size == other.size == (20, 10)
    assert own.mode == "RGB"
    hot, cold = other.getpixel((6, 3)), other.getpixel((0, 0))
    assert hot[0] > hot[2]  # type: ignore[index]
    assert cold[2] > cold[0]  # type: ignore[index]
    assert own.getpixel((19, 9)) != other.getpixel((19, 9))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_number_of_channels_can_be_shown(channels: int) -> None:
    item = planted()
    given = Explanation(
        item.heatmap, item.raw, {}, (), item.passes, "node", torch.rand(channels, 10, 20), item.facts
    )
    assert given.overlay().size == (20, 10)


def test_a_notebook_shows_picture_and_escaped_name() -> None:
    html = planted()._repr_html_()
    assert "data:image/png;base64,iVBOR" in html
    assert "&lt;wing&gt; &amp; tail: 7 forward and 5 backward passes" in html


@pytest.mark.parametrize("stem", ["", "bird"])
def test_everything_can_be_saved(tmp_path: Path, stem: str) -> None:
    item, prefix = planted(), f"{stem}-" if stem else ""
    assert item.save(tmp_path / "new" / "folder", stem=stem) == tmp_path / "new" / "folder"
    place = tmp_path / "new" / "folder"
    names = {
        "heatmap.npy",
        "raw.npy",
        "mask06.npy",
        "overlay.png",
        "blend.png",
        "masked.png",
        "explanation.json",
    }
    assert {path.name for path in place.iterdir()} == {prefix + name for name in names}
    assert np.array_equal(np.load(place / f"{prefix}raw.npy"), item.raw.numpy())
    assert np.array_equal(np.load(place / f"{prefix}heatmap.npy"), item.heatmap.numpy())
    assert np.array_equal(np.load(place / f"{prefix}mask06.npy"), item.masks[6].numpy())
    with Image.open(place / f"{prefix}overlay.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(item.overlay()))
    with Image.open(place / f"{prefix}masked.png") as picture:
        assert picture.getpixel((0, 0)) == (0, 0, 0)
    assert json.loads((place / f"{prefix}explanation.json").read_text("utf-8")) == json.loads(
        json.dumps(item.summary())
    )


def test_a_summary_is_json() -> None:
    summary = json.loads(json.dumps(planted().summary()))
    assert summary["node"] == "<wing> & tail"
    assert summary["size"] == [10, 20]
    assert summary["passes"] == {"forward": 7, "backward": 5}
    assert summary["box"] == {"left": 1, "top": 2, "right": 15, "bottom": 8}
    assert summary["loss"] == [0.5, 0.25]
    assert summary["settings"]["sizes"] == [6]
