"""What numbers mean is told everywhere: under the pointer, at the focus, at a tap, and to screen readers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dprotonet.figures.meanings import MEANINGS
from dprotonet.web import app
from web_browser import upload

UNTOLD = """selectors => [...document.querySelectorAll(selectors)].filter(one => {
    if (!one.checkVisibility() || !/\\d/.test(one.textContent)) return false;
    const told = one.closest("[aria-describedby]");
    return !told || !document.getElementById(told.getAttribute("aria-describedby"))?.textContent;
}).map(one => one.textContent)"""


@pytest.fixture
def finger(browser: Browser) -> Iterator[Page]:
    """A phone: no pointer that hovers."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    yield context.new_page()
    context.close()


def test_every_number_of_an_answer_has_a_meaning(page: Page, address: str, bird_file: Path) -> None:
    upload(page, address, bird_file)
    page.locator(".evidence-row button.quiet").first.click()
    expect(page.locator("#whatif-test")).to_contain_text("Test accuracy on 12 images")
    numbers = "#run button, .share, .factor, .of button, .ahead *, #whatif-words p[id] *"
    assert page.locator(numbers).count() > 20
    assert page.evaluate(UNTOLD, numbers) == []
    for row in page.locator(".line").all():
        expect(row.locator(".term")).to_have_count(1)


def test_every_number_of_a_prototype_has_a_meaning(page: Page, address: str) -> None:
    page.goto(f"{address}/#prototypes")
    expect(page.locator(".proto .purity").first).to_be_visible()
    assert page.evaluate(UNTOLD, ".proto .purity") == []
    page.locator(".proto").first.click()
    numbers = "#dialog .facts li *, #dialog .purity, #dialog .near .term"
    assert page.locator(numbers).count() > 10
    assert page.evaluate(UNTOLD, numbers) == []


def test_by_pointer_keyboard_and_escape(page: Page, address: str, bird_file: Path) -> None:
    upload(page, address, bird_file)
    number = page.locator(".factor").first
    number.hover()
    expect(page.locator("#tip")).to_have_text(MEANINGS["similarity"])
    page.locator("#tip").hover()
    page.wait_for_timeout(500)
    expect(page.locator("#tip")).to_be_visible()  # it may be read and copied
    page.mouse.move(2, 2)
    expect(page.locator("#tip")).to_be_hidden()
    number.focus()
    page.keyboard.press("Tab")
    expect(page.locator("#tip")).to_have_text(MEANINGS["weight"])
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()
    weight = page.locator(".factor").nth(1)
    expect(weight).to_have_accessible_description(MEANINGS["weight"])
    expect(weight).to_have_accessible_name(re.compile(r"\d weight$"))


def test_within_a_dialog(page: Page, address: str) -> None:
    page.goto(f"{address}/#prototypes")
    expect(page.locator(".proto .purity").first).to_be_visible()
    page.locator(".proto").first.click()
    weight = page.locator("#dialog").get_by_role("button", name="weight")
    weight.hover()
    tip = page.locator("#tip")
    expect(tip).to_have_text(MEANINGS["weight"])
    box = tip.bounding_box()
    assert box is not None
    middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
    assert page.evaluate("([x, y]) => document.elementFromPoint(x, y).id", middle) == "tip"  # not beneath
    expect(weight).to_have_accessible_description(MEANINGS["weight"])


def test_by_a_tap(finger: Page, address: str, bird_file: Path) -> None:
    upload(finger, address, bird_file)
    finger.locator(".headline .share").tap()
    expect(finger.locator("#tip")).to_be_visible()
    box = finger.locator("#tip").bounding_box()
    assert box is not None
    assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
    finger.locator("#why").tap()
    expect(finger.locator("#tip")).to_be_hidden()


def test_meanings_that_the_page_asks_for_exist_and_all_are_used() -> None:
    scripts = "".join(path.read_text() for path in app.STATIC.iterdir())
    for name in re.findall(r'data-meaning="(\w+)"', scripts) + re.findall(r'term\("(\w+)"', scripts):
        assert name in MEANINGS
    for name in MEANINGS:
        assert f'"{name}"' in scripts
