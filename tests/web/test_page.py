"""The page in a real browser: upload, evidence, live heatmaps, cancel, what if, keyboard, phone."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from dprotonet.web import app
from dprotonet.web.service import Service
from web_browser import upload
from web_server import served, until


@pytest.fixture(scope="module")
def endless_address(endless: Service) -> Iterator[str]:
    with served(endless) as found:
        yield found


def hundredths(text: str) -> int:
    return round(100 * float(text.replace("−", "-").replace("+", "")))


def shown(page: Page, selector: str) -> str:
    """What a canvas shows now."""
    picture: str = page.locator(selector).evaluate("canvas => canvas.toDataURL()")
    return picture


def test_upload_and_evidence_that_adds_up(
    page: Page, address: str, bird_file: Path, service: Service
) -> None:
    upload(page, address, bird_file)
    wanted = service.model.predict(bird_file)
    expect(page.locator(".headline")).to_contain_text(wanted.class_name)
    expect(page.locator(".evidence-row")).to_have_count(3)
    points = [hundredths(text) for text in page.locator(".factor.result .value").all_inner_texts()]
    *others, total = [hundredths(text) for text in page.locator("#sum .value").all_inner_texts()]
    assert sum(points) + sum(others) == total == round(100 * wanted.logit)
    expect(page.get_by_text("Picture (.png)")).to_be_visible()  # the heatmaps are finished
    expect(page.locator("#working")).to_be_hidden()
    page.locator("#more-rows").click()
    expect(page.locator(".evidence-row")).to_have_count(6)


def test_threshold_and_opacity_change_the_picture(page: Page, address: str, bird_file: Path) -> None:
    upload(page, address, bird_file)
    expect(page.get_by_text("Picture (.png)")).to_be_visible()
    canvas = ".evidence-row:first-child figure:first-child canvas"
    before = shown(page, canvas)
    for dial, value in (("#share", "60"), ("#opacity", "20")):
        page.locator(dial).fill(value)
        after = shown(page, canvas)
        assert after != before
        before = after
    page.locator("#box").uncheck()
    assert shown(page, canvas) != before


def test_downloads(page: Page, address: str, bird_file: Path) -> None:
    upload(page, address, bird_file)
    for words, name in (
        ("Picture (.png)", "explanation.png"),
        ("Numbers (.json)", "explanation.json"),
        (re.compile(r"Map \d+ \(.npy\)"), None),
    ):
        with page.expect_download() as download:
            page.locator("#downloads").get_by_text(words).first.click()
        assert name in (None, download.value.suggested_filename)
        assert Path(download.value.path()).stat().st_size > 500


def test_heatmaps_sharpen_live_until_cancelled(
    page: Page, endless_address: str, endless: Service, bird_file: Path
) -> None:
    upload(page, endless_address, bird_file)
    canvas = ".evidence-row:first-child figure:first-child canvas"
    expect(page.locator("#progress")).to_have_attribute("value", re.compile(r"\d+"))
    before = shown(page, canvas)
    until(lambda: shown(page, canvas) != before)
    page.locator("#cancel").click()
    expect(page.locator("#working")).to_be_hidden()
    expect(page.locator("#again")).to_be_visible()
    until(lambda: all(job.ended for job in endless.jobs.values()))


def test_leaving_the_page_ends_the_work(
    page: Page, endless_address: str, endless: Service, bird_file: Path
) -> None:
    upload(page, endless_address, bird_file)
    expect(page.locator("#progress")).to_have_attribute("value", re.compile(r"\d+"))
    assert not all(job.ended for job in endless.jobs.values())
    page.goto("about:blank")
    until(lambda: all(job.ended for job in endless.jobs.values()))


def test_why_not_another_class(page: Page, address: str, bird_file: Path, service: Service) -> None:
    upload(page, address, bird_file)
    page.locator(".class").nth(2).click()
    expect(page.locator("#why")).to_contain_text("Why not")
    expect(page.locator(".class").nth(2)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#sum .total")).to_contain_text(page.locator(".class .name").nth(2).inner_text())


def test_methods_side_by_side(page: Page, address: str, bird_file: Path) -> None:
    upload(page, address, bird_file)
    for name in ("MDM decoder", "Grad-CAM"):
        page.get_by_role("button", name=name, exact=True).click()
    expect(page.locator("#maps figure a:visible")).to_have_count(2)
    page.get_by_role("button", name="Grad-CAM", exact=True).click()
    expect(page.locator("#maps figure")).to_have_count(1)


def test_what_if(page: Page, address: str, bird_file: Path, service: Service) -> None:
    upload(page, address, bird_file)
    expect(page.locator("#whatif")).to_be_hidden()
    number = service.model.predict(bird_file).evidence[0].prototype
    page.locator(".evidence-row button.quiet").first.click()
    expect(page.locator("#whatif-image")).to_contain_text("→")
    expect(page.locator("#whatif-test")).to_contain_text("Test accuracy on 12 images")
    expect(page.locator("#sum")).to_contain_text("1 prototype switched off")
    expect(page.locator(".evidence-row").first).not_to_contain_text(f"prototype {number}\n")
    page.locator("#whatif-save").click()
    expect(page.locator("#saving")).to_contain_text("Saved as birds-cleaned/")
    page.locator("#whatif-clear").click()
    expect(page.locator("#whatif")).to_be_hidden()


def test_prototype_browser(page: Page, address: str, service: Service) -> None:
    page.goto(f"{address}/#prototypes")
    expect(page.locator(".proto .purity").first).to_be_visible()
    page.locator("#browse-class").select_option(service.model.classes[1])
    expect(page.locator(".proto").first).to_contain_text(service.model.classes[1])
    page.locator(".proto").first.click()
    expect(page.locator("#dialog .near li")).to_have_count(10)
    page.locator("#dialog").get_by_role("button", name="background").click()
    expect(page.locator("#dialog").get_by_role("button", name="background")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    expect(page.locator("#whatif")).to_contain_text("off")
    expect(page.locator(".proto.off")).not_to_have_count(0)


@pytest.mark.parametrize(
    ("content", "words"), [(b"no image", "no image"), (b"", "empty"), (b"\0" * 300_000, "larger")]
)
def test_broken_uploads_are_told_and_do_no_harm(
    page: Page, address: str, bird_file: Path, content: bytes, words: str
) -> None:
    page.goto(address)
    page.locator("#file").set_input_files({"name": "x.png", "mimeType": "image/png", "buffer": content})
    expect(page.get_by_role("alert")).to_contain_text(words)
    page.locator("#file").set_input_files(bird_file)
    expect(page.locator(".evidence-row")).to_have_count(3)
    expect(page.get_by_role("alert")).to_be_hidden()


def test_an_image_given_before_the_page_knows_its_run_is_not_lost(
    page: Page, address: str, bird_file: Path
) -> None:
    waiting: list[Route] = []
    page.route("**/api/run", lambda route: waiting.append(route))
    page.goto(address)
    page.locator("#file").set_input_files(bird_file)
    expect(page.get_by_role("status")).to_contain_text("still loading")
    waiting.pop().continue_()
    expect(page.locator(".evidence-row")).to_have_count(3)


def test_a_run_that_does_not_come_is_told(page: Page, address: str, bird_file: Path) -> None:
    page.route("**/api/run", lambda route: route.abort())
    page.goto(address)
    page.locator("#file").set_input_files(bird_file)
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator(".evidence-row")).to_have_count(0)


def test_dropped_and_pasted(page: Page, address: str, bird_file: Path) -> None:
    page.goto(address)
    data = list(bird_file.read_bytes())
    for kind, field in (("drop", "dataTransfer"), ("paste", "clipboardData")):
        page.evaluate(
            """([kind, field, data]) => {
                const carried = new DataTransfer();
                carried.items.add(new File([new Uint8Array(data)], "b.png", { type: "image/png" }));
                const event = kind === "drop"
                    ? new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true })
                    : new ClipboardEvent(kind, { clipboardData: carried, bubbles: true });
                document.body.dispatchEvent(event);
            }""",
            [kind, field, data],
        )
        expect(page.locator(".evidence-row")).to_have_count(3)
        page.reload()


def test_the_box_is_round_the_hottest_spot_not_round_all(page: Page, address: str) -> None:
    """Two spots in opposite corners, the second one hotter; a box round both would be the whole map."""
    page.goto(address)
    found = page.evaluate(
        """async () => {
            const { boxOf } = await import("/static/heat.js");
            const values = Float32Array.from({ length: 100 }, (_, at) => {
                const [x, y] = [at % 10, Math.floor(at / 10)];
                return x < 2 && y < 3 ? 0.9 : x > 6 && y > 7 ? (x === 8 ? 1 : 0.95) : 0;
            });
            const map = { values, sorted: values.slice().sort(), width: 10, height: 10 };
            return [boxOf(map, 0.12), boxOf(map, 0.02), boxOf(map, 1)];
        }"""
    )
    assert found == [[0.7, 0.8, 1, 1], [0.8, 0.8, 0.9, 1], [0, 0, 1, 1]]


def test_keyboard_only(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator(".tile img").first).to_be_visible()
    reach(page, ".skip")
    reach(page, "#file")
    reach(page, ".tile")
    page.keyboard.press("Enter")
    expect(page.locator(".evidence-row")).to_have_count(3)
    reach(page, ".class:nth-child(2)")
    assert page.locator(":focus").evaluate("one => getComputedStyle(one).outlineStyle") != "none"
    page.keyboard.press("Space")
    expect(page.locator("#why")).to_contain_text("Why not")
    expect(page.locator(".class:nth-child(2)")).to_be_focused()
    reach(page, "#share")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#share-said")).to_have_text("21 %")
    reach(page, ".evidence-row button.quiet")
    page.keyboard.press("Enter")
    expect(page.locator("#whatif")).to_be_visible()
    reach(page, "#whatif-clear")
    page.keyboard.press("Enter")
    expect(page.locator("#whatif")).to_be_hidden()


def reach(page: Page, selector: str) -> None:
    """Tab until the focus is there."""
    for _ in range(100):
        if page.locator(selector).first.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} cannot be reached by keyboard")


def test_phone(page: Page, address: str, bird_file: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    upload(page, address, bird_file)
    expect(page.locator(".evidence-row")).to_have_count(3)
    for place in ("#explain", "#prototypes"):
        page.goto(f"{address}/{place}")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


# ── colours ──


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_stand_out_from_their_ground(theme: int) -> None:
    """WCAG AA: a contrast of 4.5 or more."""
    blocks = re.findall(r":root \{(.*?)\}", (app.STATIC / "style.css").read_text(), re.S)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", blocks[theme]))
    on_paper = [
        (name, ground)
        for name in ("ink", "muted", "accent", "for", "against")
        for ground in ("paper", "ground")
    ]
    for word, ground in [
        *on_paper,
        ("accent-ink", "accent"),
        ("good", "good-ground"),
        ("bad", "bad-ground"),
        ("notice", "notice-ground"),
    ]:
        lighter, darker = sorted((luminance(colours[word]), luminance(colours[ground])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (word, ground)
