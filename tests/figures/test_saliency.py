"""Saliency and method sheets, and the paper's two blends: sizes, content, and inputs that do not fit."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dprotonet.figures import binary_image, heatmap_blend, masked_image, method_sheet, overlay, saliency_sheet
from dprotonet.figures.overlay import heat
from dprotonet.figures.saliency_sheet import ABREAST
from dprotonet.figures.style import BODY, font
from dprotonet.figures.words import Words

IMAGES = torch.randint(0, 255, (3, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
HEATMAPS = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(1))
TITLES = ["robin", "wren", "tit"]
LONG = "Größter schwarzfüßiger Albatros · Черноногий альбатрос " * 4


def test_heatmap_blend_is_equation_18() -> None:
    image, heatmap = IMAGES[0], HEATMAPS[0]
    expected = (0.5 * image + 0.3 * 255 * heat(heatmap)).round().to(torch.uint8)
    assert torch.equal(heatmap_blend(image, heatmap), expected)
    assert torch.equal(heatmap_blend(image, heatmap, alpha=1, beta=0), image)
    assert heatmap_blend(image, heatmap).float().mean() < overlay(image, heatmap).float().mean()


def test_masked_image_is_equation_19() -> None:
    image, heatmap = IMAGES[0], HEATMAPS[0]
    literal = [
        [[round(float(image[c, y, x]) * float(heatmap[y, x])) for x in range(8)] for y in range(8)]
        for c in range(3)
    ]
    assert torch.equal(masked_image(image, heatmap), torch.tensor(literal, dtype=torch.uint8))
    assert torch.equal(masked_image(image, torch.ones(8, 8)), image)
    assert not masked_image(image, torch.zeros(8, 8)).any()


def test_binary_image_is_line_21_of_algorithm_1() -> None:
    image = torch.arange(192, dtype=torch.uint8).reshape(3, 8, 8)
    kept = torch.rand(8, 8, generator=torch.Generator().manual_seed(2)) >= 0.5
    literal = [
        [[int(image[c, u, v]) if kept[u, v] else 0 for v in range(8)] for u in range(8)] for c in range(3)
    ]
    assert torch.equal(binary_image(image, kept), torch.tensor(literal, dtype=torch.uint8))
    with pytest.raises(ValueError, match="must be bool"):
        binary_image(image, kept.float())


@pytest.mark.parametrize("blend", [heatmap_blend, masked_image])
def test_blends_take_grey_images_and_refuse_what_does_not_fit(
    blend: Callable[[Tensor, Tensor], Tensor],
) -> None:
    shown = blend(IMAGES[0, :1, :4], HEATMAPS[0, :4])
    assert shown.shape == (3, 4, 8)
    assert shown.dtype == torch.uint8
    with pytest.raises(ValueError, match=r"heatmap \(4, 8\) cannot lie over an image \(3, 8, 8\)"):
        blend(IMAGES[0], HEATMAPS[0, :4])
    with pytest.raises(ValueError, match=r"must be uint8 .* not torch.float32"):
        blend(IMAGES[0] / 255, HEATMAPS[0])
    for bad in (1.5, -0.5, float("nan")):
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
            blend(IMAGES[0], torch.full((8, 8), bad))


def test_one_row_an_image(written: list[str]) -> None:
    three = saliency_sheet(IMAGES, HEATMAPS, titles=TITLES, captions=["80 %", "", "first\nsecond"])
    assert {*TITLES, "80 %", "first", "second", "ignored", "decisive"} <= set(written)
    assert {"the image", "where the network looks", "what the network needs to see"} <= set(written)
    one = saliency_sheet(IMAGES[:1], HEATMAPS[:1], titles=TITLES[:1])
    assert (three.width, three.height > 2 * one.height) == (one.width, True)
    cold = saliency_sheet(IMAGES[:1], 0 * HEATMAPS[:1], titles=TITLES[:1])
    assert cold.tobytes() != one.tobytes()


def test_rows_fit_their_images_and_their_words() -> None:
    wide, heatmap = IMAGES[0, :1, :2], HEATMAPS[0, :2]
    flat = saliency_sheet([wide], [heatmap], titles=["wide"])
    assert flat.height < saliency_sheet(IMAGES[:1], HEATMAPS[:1], titles=["square"]).height
    assert flat.height < saliency_sheet([wide], [heatmap], titles=[LONG], captions=[LONG]).height
    mixed = saliency_sheet([wide, wide.transpose(1, 2)], [heatmap, heatmap.T], titles=["wide", "tall"])
    assert mixed.width == flat.width


def test_words_stay_within_their_width() -> None:
    words = Words(LONG, LONG, width=200).lines
    assert [bold for _, bold in words] == [True] * 3 + [False] * 4
    assert all(font(BODY, bold=True).getlength(line) <= 200 for line, bold in words if bold)
    [(name, _)] = Words("a_long_name_without_any_space_00017.jpg", "", width=200).lines
    assert name.endswith("00017.jpg")
    assert Words("", "", width=200).height > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"titles": ["a"]}, "1 titles for 3 images"),
        ({"titles": TITLES, "captions": ["a"]}, "1 captions for 3 images"),
        ({"titles": TITLES, "heatmaps": HEATMAPS[:2]}, "2 heatmaps for 3 images"),
        ({"titles": TITLES, "heatmaps": HEATMAPS[:, :4]}, "cannot lie over an image"),
        ({"titles": [], "images": [], "heatmaps": []}, "at least one image"),
    ],
)
def test_rows_that_do_not_match_are_refused(wrong: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"images": IMAGES, "heatmaps": HEATMAPS, **wrong}
    with pytest.raises(ValueError, match=message):
        saliency_sheet(**given)  # type: ignore[arg-type]


def test_methods_stand_side_by_side(written: list[str]) -> None:
    methods = {"MDM": HEATMAPS[0], "Grad-CAM": HEATMAPS[1]}
    sheet = method_sheet(IMAGES[0], methods, title="two", captions={"MDM": "insertion 0.81"})
    assert {"two", "the image", *methods, "insertion 0.81", "ignored", "decisive"} <= set(written)
    swapped = method_sheet(IMAGES[0], {"MDM": HEATMAPS[1], "Grad-CAM": HEATMAPS[0]}, title="two")
    assert sheet.width == swapped.width
    assert sheet.tobytes() != swapped.tobytes()


def test_many_methods_take_a_second_line() -> None:
    sheets = [
        method_sheet(IMAGES[0], {f"method {k}": HEATMAPS[0] for k in range(count)}, title="many")
        for count in (0, ABREAST - 1, ABREAST)
    ]
    assert sheets[0].height == sheets[1].height < sheets[2].height
    assert sheets[0].width < sheets[2].width < sheets[1].width


def test_methods_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match=r"captions for \['MMD'\], but the heatmaps are of \['MDM'\]"):
        method_sheet(IMAGES[0], {"MDM": HEATMAPS[0]}, title="", captions={"MMD": "a"})
    with pytest.raises(ValueError, match="cannot lie over an image"):
        method_sheet(IMAGES[0], {"MDM": HEATMAPS[0, :4]}, title="")
