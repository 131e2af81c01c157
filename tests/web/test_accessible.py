"""For everyone: names and roles, contrast as painted in light and dark, a phone without sideways scrolling.

Own checks, since axe-core would have to come from another registry: every control has a name, ids are unique
and found, headings do not skip a level, pictures have a text, and colours are measured where they are shown.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from web_browser import upload

VIEWS = ("explain", "gallery", "prototypes", "dialog")

FAULTS = """() => {
    const faults = [], seen = one => one.checkVisibility({ visibilityProperty: true });
    const ids = [...document.querySelectorAll("[id]")].map(one => one.id);
    ids.filter((id, at) => ids.indexOf(id) !== at).forEach(id => faults.push(`twice: #${id}`));
    for (const name of ["aria-describedby", "aria-labelledby", "for"])
        for (const one of document.querySelectorAll(`[${name}]`))
            if (!document.getElementById(one.getAttribute(name)))
                faults.push(`no #${one.getAttribute(name)}`);
    const named = one => one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length
        || one.getAttribute("aria-labelledby");
    const controls = "button, a[href], input, select, progress, nav, dialog[open]";
    for (const one of document.querySelectorAll(controls))
        if (seen(one) && !named(one)) faults.push(`no name: ${one.outerHTML.slice(0, 90)}`);
    for (const one of document.querySelectorAll("button[aria-label], a[aria-label]")) {
        const words = one.textContent.trim().toLowerCase();
        const name = one.getAttribute("aria-label").toLowerCase();
        if (seen(one) && /^[a-z ]+$/.test(words) && !name.includes(words))
            faults.push(`said otherwise than shown: ${one.outerHTML.slice(0, 90)}`);
    }
    for (const one of document.querySelectorAll("img:not([alt]), canvas:not([role=img]):not([aria-hidden])"))
        faults.push(`no text: ${one.outerHTML.slice(0, 90)}`);
    for (const one of document.querySelectorAll("button button, a button, button a, label button"))
        faults.push(`a control in a control: ${one.outerHTML.slice(0, 90)}`);
    const levels = [...document.querySelectorAll("h1, h2, h3, h4")].filter(seen).map(one => +one.tagName[1]);
    levels.forEach((level, at) => { if (at && level > levels[at - 1] + 1) faults.push(`h${level} skips`); });
    return faults;
}"""

FAINT = """() => {
    const channels = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
    const ground = one => {
        for (let here = one; here; here = here.parentElement) {
            const found = channels(getComputedStyle(here).backgroundColor);
            if (found.length < 4 || found[3] > 0.99) return found;
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const one of document.querySelectorAll("body *")) {
        const words = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        const apart = "option, :disabled, noscript, .hidden, .skip";
        if (!words || one.closest(apart)) continue;
        if (!one.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
        const both = [light(channels(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => b - a);
        const contrast = (both[0] + 0.05) / (both[1] + 0.05);
        if (contrast < 4.5)
            faint.push(`${contrast.toFixed(2)}: ${one.className} ${one.textContent.trim().slice(0, 40)}`);
    }
    return faint;
}"""


def shown(page: Page, address: str, view: str, bird_file: Path) -> None:
    """The page at a view, with what that view has, one prototype switched off and a tooltip open."""
    if view == "explain":
        upload(page, address, bird_file)
        page.locator(".evidence-row button.quiet").first.click()
        expect(page.locator("#whatif-test")).to_contain_text("Test accuracy on 12 images")
        page.get_by_role("button", name="Grad-CAM", exact=True).click()
        expect(page.locator("#maps a")).to_be_visible()
        page.locator("#headline .share").focus()
    elif view == "gallery":
        page.goto(f"{address}/#gallery")
        expect(page.locator("#gallery .proto").first).to_be_visible()
    else:
        page.goto(f"{address}/#prototypes")
        expect(page.locator(".proto .purity").first).to_be_visible()
    if view == "dialog":
        page.locator("#browse .proto").first.click()
        expect(page.locator("#dialog .near li")).to_have_count(10)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Any]:
    """Pages of any kind, closed at the end."""
    contexts = []

    def open_page(**settings: Any) -> Page:
        contexts.append(browser.new_context(**settings))
        contexts[-1].set_default_timeout(60_000)
        return contexts[-1].new_page()

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("view", VIEWS)
def test_names_roles_and_order(page: Page, address: str, bird_file: Path, view: str) -> None:
    shown(page, address, view, bird_file)
    assert page.evaluate(FAULTS) == []
    for role in ("banner", "main", "navigation"):
        if view != "dialog":  # which hides the rest
            expect(page.get_by_role(role)).to_have_count(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_words_can_be_read(opened: Any, address: str, bird_file: Path, view: str, theme: str) -> None:
    """WCAG AA as painted: 4.5 of every word against what lies behind it."""
    page = opened(viewport={"width": 1280, "height": 900}, color_scheme=theme, reduced_motion="reduce")
    shown(page, address, view, bird_file)
    assert page.evaluate(FAINT) == []


def test_the_measure_of_contrast_finds_faint_words(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#run")).to_contain_text("classes")
    page.evaluate("() => { document.getElementById('run').style.color = '#bbb'; }")
    assert any("run" in one for one in page.evaluate(FAINT))


def test_the_measure_of_names_finds_faults(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#run")).to_contain_text("classes")
    page.evaluate("() => document.querySelector('main').append(document.createElement('button'))")
    assert any("no name" in one for one in page.evaluate(FAULTS))
    page.evaluate("() => Object.assign(main.lastChild, { textContent: 'Go', ariaLabel: 'Send' })")
    assert any("said otherwise" in one for one in page.evaluate(FAULTS))


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_scrolls_downwards_only(opened: Any, address: str, bird_file: Path, view: str) -> None:
    page = opened(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    shown(page, address, view, bird_file)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input[type=checkbox]")]
            .filter(one => one.checkVisibility() && !one.closest("p"))
            .map(one => [one.getBoundingClientRect(), one.outerHTML.slice(0, 80)])
            .filter(([box]) => box.height && (box.height < 17 || box.width < 17)).map(([, text]) => text)"""
    )
    assert small == []


def test_a_dialog_gives_the_focus_back(page: Page, address: str) -> None:
    page.goto(f"{address}/#prototypes")
    expect(page.locator(".proto .purity").first).to_be_visible()
    card = page.locator("#browse .proto").nth(2)
    card.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#dialog")).to_be_visible()
    assert page.evaluate("() => document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    expect(card).to_be_focused()
