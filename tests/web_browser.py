"""What tests of the page do in a browser, again and again."""

from pathlib import Path

from playwright.sync_api import Page, expect


def upload(page: Page, address: str, file: Path) -> None:
    """Give the page a file, and wait for the answer."""
    page.goto(address)
    page.locator("#file").set_input_files(file)
    expect(page.locator("#headline strong")).to_be_visible()
