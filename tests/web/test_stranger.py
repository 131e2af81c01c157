"""An image unlike the training images: the page warns first, and prints the class as a mere guess."""

from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from dprotonet.web.service import Service
from web_browser import upload
from web_server import png_of


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strangers") / "noise.png"
    random = torch.Generator().manual_seed(0)
    path.write_bytes(png_of(torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8, generator=random)))
    return path


def size_of(page: Page, selector: str) -> float:
    return float(page.locator(selector).evaluate("shown => parseFloat(getComputedStyle(shown).fontSize)"))


def test_the_warning_comes_first_and_the_class_is_small(
    page: Page, address: str, stranger: Path, bird_file: Path, service: Service
) -> None:
    assert service.model.predict(stranger).familiar is False
    assert service.model.predict(bird_file).familiar is True
    upload(page, address, bird_file)
    expect(page.locator(".headline")).to_contain_text("The network sees")
    expect(page.locator("#unfamiliar")).to_be_hidden()
    usual = size_of(page, ".headline strong")

    upload(page, address, stranger)
    expect(page.locator("#unfamiliar")).to_contain_text("unlike the training images")
    expect(page.locator(".headline")).to_contain_text("Of its classes the network would choose")
    warning, headline = (page.locator(name).bounding_box() for name in ("#unfamiliar", ".headline"))
    assert warning is not None
    assert headline is not None
    assert warning["y"] + warning["height"] <= headline["y"]
    small = size_of(page, ".headline strong")
    assert small < usual
    assert small == size_of(page, ".headline .share") <= size_of(page, "#unfamiliar")
