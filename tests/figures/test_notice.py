"""A notice: in amber, whole, beneath what was predicted; without words there is none, and no room for one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from dprotonet.figures import (
    EvidenceSheetRow,
    ExplanationRow,
    evidence_sheet,
    explanation_sheet,
    method_sheet,
    saliency_sheet,
)
from dprotonet.figures.notice import Notice
from dprotonet.figures.style import CAUTION, SMALL, font

GREY = torch.full((3, 20, 20), 128, dtype=torch.uint8)
HEATMAP = torch.zeros(20, 20)
WORDS = "careful: this image is unlike the training images (1.17 times as far as the limit)"
LIKELY = [("robin", 0.6), ("wren", 0.4)]


def evidence(notice: str) -> Image.Image:
    row = EvidenceSheetRow(GREY, "robin", 7, similarity=2.0, weight=1.0, contribution=2.0)
    return evidence_sheet(
        GREY, title="t", probabilities=LIKELY, rows=[row], rest=0.0, logit=2.0, notice=notice
    )


def explanation(notice: str) -> Image.Image:
    row = ExplanationRow(GREY, GREY, "robin", 7, similarity=2.0, weight=1.0, contribution=2.0)
    return explanation_sheet(
        GREY, title="t", probabilities=LIKELY, rows=[row], rest=0.0, logit=2.0, notice=notice
    )


def saliency(notice: str) -> Image.Image:
    return saliency_sheet([GREY], [HEATMAP], titles=["robin"], captions=["a.png"], notices=[notice])


def methods(notice: str) -> Image.Image:
    return method_sheet(GREY, {"MDM": HEATMAP}, title="t", notice=notice)


def amber(image: Image.Image) -> np.ndarray:
    """The rows of the picture that have the mark."""
    hit = (np.asarray(image) == ImageColor.getrgb(CAUTION)).all(axis=-1)
    return np.flatnonzero(hit.any(axis=1))


@pytest.mark.parametrize("sheet", [evidence, explanation, saliency, methods])
def test_sheets_show_it_whole(sheet: Callable[[str], Image.Image], written: list[str]) -> None:
    image = sheet(WORDS)
    assert WORDS in " ".join(written)
    assert amber(image).size
    assert image.height - amber(image)[-1] > 40, "not cut by the edge"
    assert amber(sheet("")).size == 0


@pytest.mark.parametrize("sheet", [evidence, explanation])
def test_it_stands_before_the_prediction_and_its_probabilities(
    sheet: Callable[[str], Image.Image], written: list[str]
) -> None:
    image = sheet(WORDS)
    order = [written.index(text) for text in (Notice(WORDS, 380).lines[0], "predicted", "60.0 %")]
    assert order == sorted(order)
    assert image.height - sheet("").height == Notice(WORDS, 380).height


def test_lines_stay_within_their_width() -> None:
    assert all(font(SMALL).getlength(line) < 230 for line in Notice(WORDS, 230).lines)
    assert Notice("", 230).height == 0


def test_each_image_has_its_own_notice() -> None:
    with pytest.raises(ValueError, match="1 notices for 2 images"):
        saliency_sheet([GREY] * 2, [HEATMAP] * 2, titles=["a", "b"], notices=["careful"])
