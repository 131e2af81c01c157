"""What a notebook shows of a prediction: points that add up, nothing that runs, words for every colour."""

import re
from html.parser import HTMLParser

import pytest

from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.figures.prediction_html import SHOWN, PointsRow, prediction_html
from dprotonet.figures.style import AGAINST, FOR

EVIL = "<script>alert(1)</script>"


def row(points: float, name: str = "wren #1") -> PointsRow:
    return PointsRow(name, "train/1.png", points / 2, 2.0, points)


def html(rows: list[PointsRow], logit: float, *, warning: str = "", name: str = "wren") -> str:
    likely = [(name, 0.8), ("robin", 0.2), ("crow", 0.0)]
    return prediction_html(
        name, caption="bird.png", probabilities=likely, rows=rows, logit=logit, warning=warning
    )


def points(text: str) -> list[float]:
    return [float(found.replace("−", "-")) for found in re.findall(r">([+−]\d+\.\d{3})<", text)]


class Balanced(HTMLParser):
    """Every tag that opens closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_points_add_up_to_the_logit() -> None:
    rows = [row(value) for value in (3.0, 2.0, 1.5, 1.0, 0.5, -0.25, -4.0)]
    *parts, total = points(html(rows, sum(item.points for item in rows)))
    assert len(parts) == SHOWN + 1
    assert sum(parts) == pytest.approx(total) == pytest.approx(3.75)
    assert "2 others" in html(rows, 3.75)


def test_few_rows_have_no_others() -> None:
    text = html([row(3.0), row(-1.0)], 2.0)
    assert points(text) == [3.0, -1.0, 2.0]
    assert "others" not in text


def test_colour_repeats_the_sign() -> None:
    text = html([row(3.0), row(-1.5)], 1.5)
    bars = re.findall(r"width:([\d.]+)em;height:.7em;background:(#\w+)", text)
    assert [colour for _, colour in bars] == [FOR, AGAINST]
    assert float(bars[0][0]) == pytest.approx(2 * float(bars[1][0]))


def test_names_are_escaped_and_tags_closed() -> None:
    text = html([PointsRow(EVIL, EVIL, 1.0, 1.0, 1.0)], 1.0, name=EVIL, warning=EVIL)
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "script" not in parser.seen
    assert text.count("&lt;script&gt;") == 4


def test_probabilities_that_are_nothing_are_left_out() -> None:
    text = html([row(1.0)], 1.0)
    assert "80.0 %" in text
    assert "robin 20.0 %" in text
    assert "crow" not in text


def test_a_strange_image_is_told() -> None:
    assert "Careful: it is strange.</p>" in html([row(1.0)], 1.0, warning="careful: it is strange")
    assert "Careful" not in html([row(1.0)], 1.0)


def test_a_prediction_shows_itself() -> None:
    item = EvidenceItem(7, "wren", "train/1.png", 2.0, 1.5, 3.0, 0)
    prediction = Prediction(
        "some/bird.png", "wren", 0, 0.9, {"wren": 0.9, "robin": 0.1}, 3.0, (item,), False, 1.25
    )
    text = prediction._repr_html_()
    assert "wren #7" in text
    assert "bird.png" in text
    assert "some/" not in text
    assert points(text) == [3.0, 3.0]
    assert "1.25 times" in text
    assert "black box" in Prediction("", "a", 0, 0.6, {"a": 0.6, "b": 0.4}, 1.0, ())._repr_html_()
