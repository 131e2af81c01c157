"""docs/gallery.md has a picture and a section for every failure that benchmarks/gallery.py draws."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
MODEST = 900_000  # bytes of a picture


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("gallery", "gallery_failures"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("gallery")


def test_every_failure_is_on_the_page(gallery: Any) -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    facts = json.loads((ROOT / "docs" / "results" / "gallery.json").read_text(encoding="utf-8"))
    assert set(facts["failures"]) == set(gallery.FAILURES)
    for name in ("explainers", *gallery.FAILURES):
        picture = ROOT / "docs" / "images" / f"gallery-{name}.png"
        assert f"(images/{picture.name})" in page
        assert picture.stat().st_size < MODEST
        Image.open(picture).verify()


def test_panels_and_grids_are_drawn(gallery: Any) -> None:
    image, heat = torch.zeros(3, 224, 224, dtype=torch.uint8), torch.rand(224, 224)
    panels = [
        gallery.Panel(image, None, "plain"),
        gallery.Panel(image, heat, "heat", "what is said of it " * 5),
    ]
    drawn = gallery.strip("a title", panels)
    assert drawn.width > 2 * gallery.PANEL
    subject = gallery.Subject(None, [image] * gallery.BIRDS, None, None, [])
    one = gallery.grid(subject, {"mdm": heat.repeat(gallery.BIRDS, 1, 1)})
    two = gallery.grid(
        subject, {"mdm": heat.repeat(gallery.BIRDS, 1, 1), "rise": heat.repeat(gallery.BIRDS, 1, 1)}
    )
    assert two.height > one.height


def test_the_layout_of_a_strange_image_keeps_its_pixels(gallery: Any) -> None:
    """Shuffled tiles are the same pixels elsewhere."""
    failures = importlib.import_module("gallery_failures")
    image = torch.arange(3 * 224 * 224).remainder(251).byte().view(3, 224, 224)
    mixed = failures.shuffled(image)
    assert torch.equal(mixed.flatten(1).sort().values, image.flatten(1).sort().values)
    assert not torch.equal(mixed, image)
