"""Characters that the font lacks: a plain mark in every figure, and never a warning."""

import warnings
from collections.abc import Callable

import pytest
import torch
from PIL import Image, ImageDraw

from dprotonet.figures import (
    AccuracyCurve,
    EvidenceSheetRow,
    comparison_grid,
    confusion_figure,
    contact_sheet,
    evidence_sheet,
    faithfulness_curves,
    forgetting_curves,
    method_sheet,
    network_curves,
    overlap_sweep,
    prototype_sheet,
    saliency_sheet,
)
from dprotonet.figures.overlap_sweep import MEASURES, SHARES
from dprotonet.figures.style import drawable

CAT = "chat 🐈 été 猫"
GREY = torch.full((3, 20, 20), 128, dtype=torch.uint8)
IMAGES, HEATMAPS = GREY.expand(2, -1, -1, -1), torch.rand(2, 20, 20)
ROW = EvidenceSheetRow(GREY, CAT, 7, similarity=2.0, weight=1.0, contribution=2.0)
CURVES = {CAT: torch.rand(2, 5), "other": torch.rand(2, 5)}
OVERLAPS = {CAT: {name: torch.rand(2, SHARES) for name in MEASURES}}

CHARTS: dict[str, Callable[[], Image.Image]] = {
    "confusion": lambda: confusion_figure(torch.eye(2).long(), classes=[CAT, "dog"], title=CAT),
    "faithfulness": lambda: faithfulness_curves(CURVES, CURVES, title=CAT),
    "forgetting": lambda: forgetting_curves({CAT: torch.rand(2, 2)}, layers=[CAT, "conv"], title=CAT),
    "networks": lambda: network_curves({CAT: AccuracyCurve([1, 2], [0.2, 0.4])}, title=CAT),
    "overlap": lambda: overlap_sweep(OVERLAPS, title=CAT),
}
SHEETS: dict[str, Callable[[], Image.Image]] = {
    "comparison": lambda: comparison_grid(IMAGES, {CAT: HEATMAPS}, titles=[CAT] * 2, captions=[CAT] * 2),
    "contact": lambda: contact_sheet(IMAGES, columns=2, captions=[CAT] * 2),
    "evidence": lambda: evidence_sheet(
        GREY, title=CAT, probabilities=[(CAT, 1.0)], rows=[ROW], rest=0.0, logit=2.0
    ),
    "methods": lambda: method_sheet(GREY, {CAT: HEATMAPS[0]}, title=CAT, captions={CAT: CAT}),
    "prototypes": lambda: prototype_sheet(IMAGES, prototype_class=[0, 0], classes=[CAT], captions=[CAT] * 2),
    "saliency": lambda: saliency_sheet(IMAGES, HEATMAPS, titles=[CAT] * 2, captions=[CAT] * 2),
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CAT, "chat □ été □"),
        ("Größe − Черный × שלום …", "Größe − Черный × שלום …"),
        ("two\nlines\u00a0of 🐈", "two\nlines\u00a0of □"),
        ("a file name \udcff that is not text", "a file name □ that is not text"),
        ("", ""),
    ],
)
def test_only_what_is_lacking_is_replaced(text: str, shown: str) -> None:
    assert drawable(text) == shown
    assert drawable(shown) == shown


@pytest.mark.parametrize("name", CHARTS)
def test_charts_do_not_warn(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CHARTS[name]().width > 300


@pytest.mark.parametrize("name", SHEETS)
def test_sheets_draw_the_mark(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    draw = ImageDraw.ImageDraw.text

    def spy(self: ImageDraw.ImageDraw, at: tuple[float, float], text: str, **options: object) -> None:
        lines.append(text)
        draw(self, at, text, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", spy)
    SHEETS[name]()
    assert any("□" in line for line in lines)
    assert not any("🐈" in line or "猫" in line for line in lines)
