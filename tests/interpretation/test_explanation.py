"""What an explanation can do by itself: a box, pictures, files."""

import json
from dataclasses import replace
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


def test_without_a_threshold_of_its_own_the_hottest_fifth_is_the_binary_mask() -> None:
    item = planted()
    assert torch.equal(item.binary_mask, item.raw > 0)  # a fifth: both rectangles
    cold = replace(item, raw=torch.where(item.raw > 1, item.raw, 0.0))
    assert torch.equal(cold.binary_mask, item.raw > 1)  # never a place as cold as the coldest
    assert not replace(item, raw=torch.ones(10, 20)).binary_mask.any()


def test_a_threshold_of_its_own_comes_first() -> None:
    above = torch.ones(10, 20, dtype=torch.bool)
    item = replace(planted(), above=above)
    assert torch.equal(item.binary_mask, above)
    assert item.summary()["kept"] == 1


def test_the_papers_three_pictures() -> None:
    image, item = torch.full((3, 10, 20), 200, dtype=torch.uint8), planted()
    hot, warm, cold = (6, 3), (2, 7), (0, 0)
    binary, masked, blend = item.binary_image(image), item.masked(image), item.heatmap_image(image)
    assert [binary.getpixel(at) for at in (hot, warm, cold)] == [(200,) * 3, (200,) * 3, (0,) * 3]
    assert [masked.getpixel(at) for at in (hot, warm, cold)] == [(200,) * 3, (100,) * 3, (0,) * 3]
    assert item.heatmap_image(image, alpha=1, beta=0).getpixel(hot) == (200,) * 3
    assert blend.getpixel(hot) != blend.getpixel(cold)


def test_pictures_have_the_size_of_the_image_that_is_given() -> None:
    image, item = torch.full((3, 30, 80), 200, dtype=torch.uint8), planted()
    assert {drawn.size for drawn in item.pictures(image).values()} == {(80, 30)}
    assert item.binary_image(image).getpixel((24, 9)) == (200,) * 3
    assert item.binary_image(image).getpixel((0, 0)) == (0,) * 3


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
        "binary_mask.npy",
        "mask06.npy",
        "overlay.png",
        "blend.png",
        "masked.png",
        "binary.png",
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
    with Image.open(place / f"{prefix}binary.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(item.binary_image()))
    kept = np.load(place / f"{prefix}binary_mask.npy")
    assert kept.dtype == np.bool_
    assert np.array_equal(kept, item.binary_mask.numpy())
    told = json.loads((place / f"{prefix}explanation.json").read_text("utf-8"))
    files = told.pop("files")
    assert told == json.loads(json.dumps(item.summary()))
    assert set(files.values()) == {prefix + name for name in names} - {f"{prefix}explanation.json"}
    assert files["binary"] == f"{prefix}binary.png"


def test_a_summary_is_json() -> None:
    summary = json.loads(json.dumps(planted().summary()))
    assert summary["node"] == "<wing> & tail"
    assert summary["size"] == [10, 20]
    assert summary["passes"] == {"forward": 7, "backward": 5}
    assert summary["box"] == {"left": 1, "top": 2, "right": 15, "bottom": 8}
    assert summary["loss"] == [0.5, 0.25]
    assert summary["settings"]["sizes"] == [6]
