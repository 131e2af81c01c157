"""The page itself: whole, safe, readable by machines that read aloud, and small."""

import base64
import hashlib
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from dprotonet.report.content import Report
from dprotonet.report.page import MARK, render
from report.made_up_report import HOSTILE, STRANGE, black_box, made_up, with_hostile_words
from report.outline import Outline

LIMIT = 15_000_000  # bytes

PAGES = {
    "clinical": lambda: replace(made_up(), clinical=True),
    "clinical black box": lambda: replace(black_box(), clinical=True),
    "all": made_up,
    "black box": black_box,
    "hostile": lambda: with_hostile_words(made_up()),
}


@pytest.fixture(params=PAGES, scope="module")
def page(request: pytest.FixtureRequest) -> str:
    return render(PAGES[request.param]())


@pytest.fixture(scope="module")
def full() -> Outline:
    return Outline(render(made_up()))


def test_nothing_is_fetched_and_nothing_runs(page: str) -> None:
    outline = Outline(page)
    assert not outline.all("script", "link", "iframe", "object", "embed", "form", "base", "video", "audio")
    for item in outline.elements:
        for name, value in item.attributes.items():
            assert not name.startswith("on"), f"{item.tag} has {name}"
            assert name != "style", f"{item.tag}: the policy forbids style attributes"
            if name in ("src", "href", "srcset", "action", "xlink:href", "poster"):
                assert value is not None
                assert value.startswith("data:image/" if item.tag == "img" else "#"), value
    (style,) = outline.all("style")
    assert "url(" not in style.text
    assert "@import" not in style.text


def test_the_policy_is_strict_and_names_the_stylesheet(page: str) -> None:
    outline = Outline(page)
    (policy,) = [
        item.attributes["content"]
        for item in outline.all("meta")
        if item.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (style,) = re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    place = page.index("Content-Security-Policy")
    assert place < page.index("<style>")  # it holds only for what comes after it
    assert MARK in page[:4096]


def test_words_of_users_stay_words() -> None:
    page = render(with_hostile_words(made_up()))
    assert "<script" not in page.lower()
    told = Outline(page)
    assert HOSTILE in told.text()
    assert any(item.attributes.get("alt") == HOSTILE for item in told.all("img"))
    plain = Outline(render(made_up()))
    assert [item.tag for item in told.elements] == [item.tag for item in plain.elements]


def test_headings_are_in_order(page: str) -> None:
    levels = [int(item.tag[1]) for item in Outline(page).all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_picture_is_told(page: str) -> None:
    outline = Outline(page)
    for item in outline.all("img"):
        assert len(item.attributes.get("alt") or "") > 8
        assert int(item.attributes["width"] or 0) > 0
        assert int(item.attributes["height"] or 0) > 0
    for drawing in outline.all("svg"):
        hidden = drawing.attributes.get("aria-hidden") == "true"
        outer = "aria-hidden" in " ".join(drawing.inside)
        assert hidden or outer or drawing.attributes.get("role") == "img" or "td" in drawing.inside


def test_the_chart_has_a_title_and_a_description(full: Outline) -> None:
    (drawing,) = [item for item in full.all("svg") if item.attributes.get("role") == "img"]
    names = (drawing.attributes["aria-labelledby"] or "").split()
    told = {item.attributes.get("id"): " ".join(item.text.split()) for item in full.all("title", "desc")}
    assert told[names[0]] == "Accuracy over epochs"
    assert "The push at epoch 2 took validation accuracy from 50.0 % to 45.0 %." in told[names[1]]


def test_landmarks_and_names(page: str) -> None:
    outline = Outline(page)
    for tag in ("header", "nav", "main", "footer"):
        assert len(outline.all(tag)) == 1, tag
    identities = [item.attributes["id"] for item in outline.elements if "id" in item.attributes]
    assert len(identities) == len(set(identities))
    for item in outline.elements:
        for name in (item.attributes.get("aria-labelledby") or "").split():
            assert name in identities
        target = item.attributes.get("href") if item.tag == "a" else None
        assert target is None or target[1:] in identities, target
    (html,) = outline.all("html")
    assert html.attributes["lang"] == "en"
    for region in outline.elements:
        if region.attributes.get("role") == "region":
            assert region.attributes.get("tabindex") == "0"  # it scrolls, so the keyboard must reach it


def test_heads_of_tables_say_what_they_head(full: Outline) -> None:
    heads = full.all("th")
    assert heads
    assert {item.attributes.get("scope") for item in heads} == {"col", "row"}


def test_points_add_up_as_they_are_written(full: Outline) -> None:
    def numbers(kinds: set[str]) -> list[float]:
        found = [item.text for item in full.elements if item.attributes.get("class") in kinds]
        return [float(text.replace("−", "-").split()[-1]) for text in found]

    points, totals = numbers({"for", "against"}), numbers({"total"})
    assert len(totals) == 3  # one of a right answer, two of a mistake
    for place, total in enumerate(totals):
        parts = points[3 * place : 3 * place + 3]  # two rows, and all other prototypes
        assert sum(parts) == pytest.approx(total, abs=1e-9)


def test_weak_prototypes_are_named(full: Outline) -> None:
    first, second, third, *_ = [
        item.text for item in full.all("li") if "card" in (item.attributes.get("class") or "").split()
    ]
    assert "Most images it is nearest to are of other classes." in first
    assert "The same as prototype 1." in " ".join(first.split())
    assert "Never decides." in second
    assert "Never" not in third


def test_only_an_unfamiliar_image_has_a_warning_on_its_card() -> None:
    sure, wrong = render(made_up()).split('<article class="case two">')
    assert f'<p class="warning">{STRANGE}</p>' in wrong
    assert STRANGE not in sure


def test_a_black_box_has_no_sections_of_prototypes() -> None:
    text = Outline(render(black_box())).text()
    assert "How to read the evidence" not in text
    assert "Classes and their prototypes" not in text
    assert "What this page does not have" in text


def test_25_classes_of_10_prototypes_stay_below_the_limit() -> None:
    report: Report = made_up(classes=25, per_class=10)
    size = len(render(report).encode())
    assert report.classes[0].cards[0].heatmap is not None
    assert 1_000_000 < size < LIMIT


def test_a_mistake_shows_both_classes_side_by_side(full: Outline) -> None:
    text = " ".join(render(made_up()).split())
    assert (
        text.count("The beak decided: 1.90 points for class 1 and 0.70 for class 0.") == 37
    )  # one explained
    assert "what speaks against class 1 first" in text
    tables = [item for item in full.all("table") if item.attributes.get("class") == "compared"]
    assert len(tables) == 37
    found = [item.text for item in full.all("strong") if "difference" in (item.attributes.get("class") or "")]
    assert found[:2] == ["−0.40", "+1.20"]
    assert "2 more, none of them larger" in text
    assert "They agree in wing (1.50 and 1.50)" in text
