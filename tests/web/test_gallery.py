"""The gallery: which test images are wrong, uncertain or strange, over HTTP and in a browser."""

import shutil
from pathlib import Path

from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

import dprotonet as dp
from dprotonet.experiment.explaining.gallery import gallery
from dprotonet.web.app import create_app
from dprotonet.web.service import Service
from web_server import HERE, served, until


def test_the_lists_are_those_of_the_run(client: TestClient, model: dp.Model) -> None:
    until(lambda: client.get("/api/gallery").json()["state"] == "ready")
    found, wanted = client.get("/api/gallery").json(), gallery(model, model.splits().test)
    counts = (found["images"], found["mistakes"], found["strangers"])
    assert counts == (wanted.images, wanted.mistakes, wanted.strangers)
    for name in ("wrong", "uncertain", "strange"):
        assert [one["index"] for one in found[name]] == [one.index for one in getattr(wanted, name)]
    first = found["uncertain"][0]
    answer = client.post(f"/api/samples/{first['index']}").json()  # opened, it says the same
    assert (answer["predicted"], answer["truth"]) == (first["predicted"], first["label"])
    assert abs(answer["probabilities"][0]["probability"] - first["probability"]) < 1e-4
    assert abs(answer["distance"] - first["distance"]) < 1e-4


def gone(web_run: Path, tmp_path: Path) -> Service:
    """A run whose data is no longer there."""
    copy = shutil.copytree(web_run, tmp_path / "moved")
    text = (copy / "config.toml").read_text().replace('data = "birds"', f'data = "folder:{tmp_path}/gone"')
    (copy / "config.toml").write_text(text)
    return Service(dp.load(copy))


def test_without_the_data_there_is_a_sentence(web_run: Path, tmp_path: Path) -> None:
    service = gone(web_run, tmp_path)
    client = TestClient(create_app(service), base_url=HERE)
    until(lambda: client.get("/api/gallery").json()["state"] == "failed")
    assert "cannot be read" in client.get("/api/gallery").json()["message"]
    service.close()


def test_from_the_gallery_to_the_explanation_by_keyboard(page: Page, address: str, model: dp.Model) -> None:
    page.goto(f"{address}/#gallery")
    sections = page.locator("#gallery section")
    expect(sections).to_have_count(3)
    for title in ("The most wrong", "The least certain", "The strangest"):
        expect(page.get_by_role("region", name=title).get_by_role("button").first).to_be_visible()
    wrong = page.get_by_role("region", name="The most wrong").locator(".proto")
    expect(wrong.first).to_contain_text("✗ it is")
    said = wrong.first.locator("strong").inner_text()
    share = wrong.first.locator("[data-meaning]").inner_text()
    wrong.first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".headline strong")).to_have_text(said)
    expect(page.locator(".headline .share")).to_have_text(share)
    expect(page.locator(".headline .tag.bad")).to_be_visible()
    expect(page.locator("#to-explain")).to_have_attribute("aria-current", "page")
    expect(page.locator("#main")).to_be_focused()
    page.go_back()
    expect(wrong.first).to_be_visible()


def test_the_page_says_that_the_data_is_gone(page: Page, web_run: Path, tmp_path: Path) -> None:
    service = gone(web_run, tmp_path)
    with served(service) as address:
        page.goto(f"{address}/#gallery")
        expect(page.locator("#gallery-said")).to_contain_text("There is no gallery: the run's data")
    service.close()
