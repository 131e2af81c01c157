"""The comparison grid: tiles, truths, boxes, failures, names, sizes, and inputs that do not fit."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor
from torch import Tensor

from dprotonet.figures import comparison_grid
from dprotonet.figures.comparison_grid import FAILED, RIGHT, WRONG, GridAnswer, Layout
from dprotonet.figures.style import AGAINST, FOUND_BOX, HAIRLINE, INK, MARGIN, PAPER, TRUE_BOX

IMAGES = torch.full((3, 3, 16, 16), 128, dtype=torch.uint8)
HEATMAPS = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(1))
TRUTH = torch.zeros(3, 16, 16, dtype=torch.bool)
TRUTH[:, 4:12, 4:12] = True
NAMES = ["robin", "wren", "tit"]
FILES = ["a.jpg", "b.jpg", "an_unusually_long_name_of_a_file_without_spaces_00017.jpg"]


def share_of(image: Image.Image, colour: str) -> float:
    return float((np.asarray(image) == ImageColor.getrgb(colour)).all(axis=-1).mean())


def near(image: Image.Image, colour: str) -> float:
    """Share of pixels of about that colour: lines are drawn fine and shrunk, which rounds them off."""
    pixels = np.asarray(image).astype(int)
    return float((abs(pixels - ImageColor.getrgb(colour)).max(axis=-1) < 40).mean())


def tile(image: Image.Image, place: int, layout: Layout) -> Image.Image:
    """A picture of the first row."""
    left = layout.left(place)
    return image.crop((left, layout.top, left + layout.side, layout.top + layout.side))


def test_one_row_an_image_and_one_column_a_method(written: list[str]) -> None:
    methods = {"mdm": HEATMAPS, "grad-cam": HEATMAPS.flip(0)}
    whole = comparison_grid(IMAGES, methods, titles=NAMES, captions=FILES)
    assert {"the image", "mdm", "grad-cam", *NAMES, "a.jpg", "b.jpg", "ignored", "decisive"} <= set(written)
    assert any(text.startswith("an_") and text.endswith("…00017.jpg") for text in written)
    assert {"truth", "found", FAILED}.isdisjoint(written)
    one = comparison_grid(IMAGES[:1], {"mdm": HEATMAPS[:1]}, titles=NAMES[:1])
    assert one.width < whole.width
    assert one.height < whole.height / 2


def test_every_heatmap_is_in_its_column() -> None:
    layout = Layout(["a", "b"], 0)
    before = comparison_grid(IMAGES[:1], {"a": HEATMAPS[:1], "b": HEATMAPS[:1]})
    after = comparison_grid(IMAGES[:1], {"a": HEATMAPS[:1], "b": 0 * HEATMAPS[:1]})
    same = [tile(before, place, layout) == tile(after, place, layout) for place in range(3)]
    assert same == [True, True, False]


def test_the_truth_is_outlined_in_every_picture_of_its_row(written: list[str]) -> None:
    layout = Layout(["a"], 0)
    flat = {"a": torch.full((2, 16, 16), 0.5)}
    image = comparison_grid(IMAGES[:2], flat, truth=[TRUTH[0], None])
    assert "truth" in written
    for place in range(2):
        upper = tile(image, place, layout)
        assert near(upper, INK) > 0.005
        assert near(upper, PAPER) > 0.005
    second = layout.top + layout.side + 22
    lower = image.crop((layout.left(0), second, layout.left(2), second + layout.side))
    assert near(lower, INK) == 0


def test_a_box_is_drawn_for_its_method_only(written: list[str]) -> None:
    layout = Layout(["a", "b"], 0)
    flat = torch.full((1, 16, 16), 0.5)
    image = comparison_grid(IMAGES[:1], {"a": flat, "b": flat}, boxes={"b": [(2, 2, 14, 9)]})
    assert "found" in written
    assert [near(tile(image, place, layout), FOUND_BOX) > 0.002 for place in range(3)] == [False, False, True]


def test_boxes_may_be_missing(written: list[str]) -> None:
    comparison_grid(IMAGES[:1], {"a": HEATMAPS[:1]}, boxes={"a": [None]})
    assert "found" not in written


def test_a_truth_of_boxes_is_red_in_its_row_only_and_one_of_a_mask_is_not(written: list[str]) -> None:
    layout = Layout(["a"], 0)
    flat = {"a": torch.full((2, 16, 16), 0.5)}
    image = comparison_grid(IMAGES[:2], flat, truth=[[(2, 2, 9, 9), (10, 10, 16, 16)], TRUTH[1]])
    assert written.count("truth") == 2  # a red and a white sample
    assert all(near(tile(image, place, layout), TRUE_BOX) > 0.01 for place in range(2))
    second = layout.top + layout.side + 22
    lower = image.crop((layout.left(0), second, layout.left(2), second + layout.side))
    assert near(lower, TRUE_BOX) == 0
    assert near(lower, PAPER) > 0.005


def test_networks_of_several_columns_have_their_answers_beneath_and_wrong_ones_marked(
    written: list[str],
) -> None:
    maps = {"ProtoPNet": HEATMAPS[:2], "Grad-CAM": HEATMAPS[:2]}
    right, wrong, unknown = GridAnswer("robin", True), GridAnswer("wren", False), GridAnswer("tit")
    answers = {"ProtoPNet": [right, wrong], "Grad-CAM": [unknown, None]}
    notes = {"Grad-CAM": "of the black box"}
    image = comparison_grid(IMAGES[:2], maps, answers=answers, notes=notes)
    assert {f"{RIGHT} robin", f"{WRONG} wren", "tit", "of the black box"} <= set(written)
    assert image.height > comparison_grid(IMAGES[:2], maps).height
    calm = comparison_grid(IMAGES[:2], maps, answers={**answers, "ProtoPNet": [right, right]}, notes=notes)
    assert near(image, AGAINST) > near(calm, AGAINST)


def test_a_failed_method_leaves_a_tile_that_says_so(written: list[str]) -> None:
    layout = Layout(["a", "b"], 0)
    image = comparison_grid(IMAGES[:1], {"a": HEATMAPS[:1], "b": [None]}, truth=TRUTH[:1])
    assert written.count(FAILED) == 1
    assert [share_of(tile(image, place, layout), HAIRLINE) > 0.8 for place in range(3)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (2, 24), (24, 2)])
def test_other_proportions(shape: tuple[int, int], written: list[str]) -> None:
    image = torch.full((1, *shape), 90, dtype=torch.uint8)
    truth = torch.ones(shape, dtype=torch.bool)
    methods: dict[str, list[Tensor | None]] = {"a": [torch.rand(shape)], "b": [None]}
    sheet = comparison_grid([image], methods, truth=[truth], titles=["wide or tall"])
    layout = Layout(["a", "b"], 1)
    assert layout.top + 40 < sheet.height <= layout.top + layout.side + 50 + MARGIN
    assert written.count(FAILED) == 1


def test_sizes_may_differ_from_row_to_row() -> None:
    images = [IMAGES[0], IMAGES[1, :, :8], IMAGES[2, :, :, :4]]
    maps = [HEATMAPS[0], HEATMAPS[1, :8], HEATMAPS[2, :, :4]]
    truth = [TRUTH[0], TRUTH[1, :8], TRUTH[2, :, :4]]
    mixed = comparison_grid(images, {"a": maps}, truth=truth)
    square = comparison_grid(IMAGES, {"a": HEATMAPS}, truth=TRUTH)
    assert mixed.width == square.width
    assert mixed.height < square.height


@pytest.mark.parametrize("methods", [1, 5, 10])
def test_pictures_shrink_so_that_many_methods_fit(methods: int, written: list[str]) -> None:
    names = [f"a method with a rather long name {number}" for number in range(methods)]
    sheet = comparison_grid(IMAGES[:1], dict.fromkeys(names, HEATMAPS[:1]), titles=NAMES[:1])
    assert sheet.width < 2400
    layout = Layout(names, 0)
    assert layout.side >= 140
    assert all(len(lines) <= 2 for lines in layout.heads)


def test_twelve_images() -> None:
    twelve = IMAGES.repeat(4, 1, 1, 1)
    sheet = comparison_grid(twelve, {"a": HEATMAPS.repeat(4, 1, 1)}, titles=NAMES * 4)
    assert sheet.height > 12 * 248


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"images": IMAGES[:0]}, "at least one image"),
        ({"heatmaps": {}}, "at least one method"),
        ({"heatmaps": {"a": HEATMAPS[:2]}}, "2 heatmaps of a for 3 images"),
        ({"titles": ["x"]}, "1 titles for 3 images"),
        ({"captions": []}, "0 captions for 3 images"),
        ({"truth": TRUTH[:1]}, "1 truth for 3 images"),
        ({"boxes": {"a": [None]}}, "1 boxes of a for 3 images"),
        ({"boxes": {"z": [None] * 3}}, r"boxes for \['z'\], but the heatmaps are of \['a'\]"),
        ({"answers": {"a": [None]}}, "1 answers of a for 3 images"),
        ({"answers": {"z": [None] * 3}}, r"answers for \['z'\]"),
        ({"notes": {"z": "a note"}}, r"notes for \['z'\]"),
        ({"truth": [[(0, 0, 99, 9)]] * 3}, "does not lie within a picture of 16 × 16"),
        ({"heatmaps": {"a": HEATMAPS[:, :8]}}, r"a: a heatmap \(8, 16\) cannot lie over an image"),
        ({"heatmaps": {"a": HEATMAPS * float("nan")}}, r"a: a heatmap must lie in \[0, 1\]"),
        ({"truth": TRUTH[:, :8]}, r"\(8, 16\) torch.bool over \(3, 16, 16\)"),
        ({"truth": TRUTH.float()}, "a truth must be bool"),
        ({"boxes": {"a": [(0, 0, 99, 9)] * 3}}, "a: box .* does not lie within a picture of 16 × 16"),
        ({"images": IMAGES / 255}, "must be uint8"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"images": IMAGES, "heatmaps": {"a": HEATMAPS}, **wrong}
    with pytest.raises(ValueError, match=message):
        comparison_grid(**given)  # type: ignore[arg-type]
