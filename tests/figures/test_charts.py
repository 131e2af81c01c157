"""Confusion matrices, training curves and overlays: sizes, content, and inputs that do not fit."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from dprotonet.figures import (
    ReliabilityGroup,
    confusion_figure,
    overlay,
    reliability_figure,
    training_curve,
)
from dprotonet.figures.overlay import heat
from dprotonet.figures.style import AGAINST, FOR, PAPER


def share_of(image: Image.Image, colour: str) -> float:
    return float((np.asarray(image) == ImageColor.getrgb(colour)).all(axis=-1).mean())


@pytest.mark.parametrize("count", [1, 3, 30, 200])
def test_confusion_scales_with_the_classes(count: int) -> None:
    matrix = torch.eye(count, dtype=torch.int64) * 5
    image = confusion_figure(
        matrix, classes=[f"a rather long class name {k}" for k in range(count)], title="$C$"
    )
    assert 300 < image.width < 3000
    assert 300 < image.height < 3000
    assert 0.02 < share_of(image, PAPER) < 0.99


def test_confusion_is_row_normalised() -> None:
    rare = confusion_figure(torch.tensor([[1, 0], [0, 900]]), classes=["", " "])
    blue = (np.asarray(rare).astype(int)[..., 2] - np.asarray(rare).astype(int)[..., 0]) > 60
    upper, lower = np.array_split(blue[:, : rare.width * 4 // 5], 2)
    assert 0.8 < upper.sum() / lower.sum() < 1.25, "one picture of one is as dark as 900 of 900"


def test_confusion_bears_a_class_without_images_and_refuses_another_shape() -> None:
    assert confusion_figure(torch.tensor([[3, 1], [0, 0]]), classes=["a", "b"]).width
    with pytest.raises(ValueError, match=r"shape \(2, 2\) does not fit 3 classes"):
        confusion_figure(torch.zeros(2, 2, dtype=torch.int64), classes=["a", "b", "c"])


def test_curve_shows_both_lines_and_its_pushes() -> None:
    lines = {"epochs": [1, 2, 3], "train": [0.3, 0.6, 0.9], "val": [0.2, 0.5, 0.6]}
    plain = training_curve(**lines)
    pushed = training_curve(**lines, pushes=[2], before_push=[0.5], after_push=[0.4])
    assert share_of(plain, FOR) > 0.0005
    assert share_of(plain, AGAINST) > 0.0005
    assert plain.tobytes() != pushed.tobytes()


@pytest.mark.parametrize("epochs", [0, 1, 100])
def test_curve_of_any_length(epochs: int) -> None:
    accuracy = [0.99] * epochs
    assert share_of(training_curve(epochs=range(epochs), train=accuracy, val=accuracy), PAPER) < 1


def test_curve_refuses_unequal_lengths() -> None:
    with pytest.raises(ValueError, match="val has 1 values for 2 epochs"):
        training_curve(epochs=[1, 2], train=[0, 1], val=[0])
    with pytest.raises(ValueError, match="before_push has 2 values for 1 pushes"):
        training_curve(epochs=[1], train=[0], val=[0], pushes=[1], before_push=[0, 0], after_push=[0])


def test_overlay_is_the_weighted_sum() -> None:
    image = torch.randint(0, 255, (3, 8, 8), dtype=torch.uint8)
    heatmap = torch.rand(8, 8)
    expected = (0.3 * image + 0.7 * 255 * heat(heatmap)).round().to(torch.uint8)
    assert torch.equal(overlay(image, heatmap, image_weight=0.3, heatmap_weight=0.7), expected)
    assert torch.equal(overlay(image, heatmap, image_weight=1, heatmap_weight=0), image)
    assert overlay(image, heatmap, image_weight=1, heatmap_weight=1).dtype == torch.uint8


def test_heat_goes_from_blue_to_red_with_one_peak_of_lightness() -> None:
    red, green, blue = heat(torch.linspace(0, 1, 200).unsqueeze(0))[:, 0]
    assert blue[0] > red[0]
    assert red[-1] > blue[-1]
    lightness = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    rising = lightness.diff() > 0
    assert rising.int().diff().abs().sum() == 1


def test_overlay_refuses_what_does_not_fit() -> None:
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    with pytest.raises(ValueError, match="cannot lie over an image"):
        overlay(image, torch.zeros(4, 4))
    for bad in (2.0, -0.5, float("nan")):
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
            overlay(image, torch.full((8, 8), bad))


def test_importing_the_room_leaves_matplotlib_alone() -> None:
    code = "import sys, dprotonet.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reliability_diagram_is_drawn_and_nothing_is_refused() -> None:
    groups = [ReliabilityGroup(0.55, 0.5, 0.2, 0.8, 6), ReliabilityGroup(0.97, 0.99, 0.9, 1.0, 300)]
    drawn = reliability_figure(groups, title="test")
    assert drawn.width > 400
    moved = reliability_figure([groups[0], ReliabilityGroup(0.97, 0.6, 0.5, 0.7, 300)], title="test")
    assert drawn.tobytes() != moved.tobytes()
    with pytest.raises(ValueError, match="one image at least"):
        reliability_figure([])
