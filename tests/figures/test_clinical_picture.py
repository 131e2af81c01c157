"""The picture for a doctor's viewer: the notice within the pixels, the warning before the answer."""

from dataclasses import replace

import numpy as np
import torch
from PIL import Image, ImageColor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.clinical_picture import BAND, WIDTH, ClinicalPicture, PlacedEvidence, draw_band
from dprotonet.figures.style import CAUTION, INK

GREY = torch.full((3, 40, 60), 90, dtype=torch.uint8)
RED = torch.tensor([200, 0, 0], dtype=torch.uint8)[:, None, None].expand(3, 40, 60)
PLAIN = ClinicalPicture(
    image=GREY,
    overlay=RED,
    answer="lung opacity",
    probability="61 %, calibrated",
    others="normal 39 %",
    evidence=[PlacedEvidence(RED, ["opacity #4", "+0.128 points"])] * 3,
)


def band() -> np.ndarray:
    canvas = Canvas(WIDTH, BAND)
    draw_band(canvas, 0)
    return np.asarray(canvas.image)


def amber(picture: Image.Image) -> np.ndarray:
    """Which pixels have the colour of a caution."""
    return (np.asarray(picture) == ImageColor.getrgb(CAUTION)).all(axis=2)


def test_the_notice_is_burnt_in_at_the_top_and_at_the_bottom() -> None:
    drawn, notice = np.asarray(PLAIN.draw()), band()
    assert (drawn[:BAND] == notice).all()
    assert (drawn[-BAND:] == notice).all()
    words = ~amber(Image.fromarray(notice))
    assert 0.05 < words.mean() < 0.3  # letters on the amber, not only amber
    assert not amber(PLAIN.draw())[BAND:-BAND].any()


def test_a_warning_stands_above_all_and_makes_room_for_itself() -> None:
    warned = replace(PLAIN, warning="Nothing here looks like what this run knows.").draw()
    inner = amber(warned)[BAND:-BAND]
    first = int(inner.any(axis=1).argmax())
    assert inner.any()
    assert first < 40
    assert warned.height > PLAIN.draw().height


def test_under_a_warning_the_class_is_no_finding() -> None:
    """Neither its name nor its probability is written large and black."""

    def black(picture: Image.Image) -> int:
        inner = np.asarray(picture)[BAND:-BAND]
        return int((inner == ImageColor.getrgb(INK)).all(axis=2).sum())

    assert black(PLAIN.draw()) > 300
    assert black(replace(PLAIN, warning="It is unlike the training images.").draw()) == 0


def test_both_pictures_are_there_in_their_proportions() -> None:
    drawn = np.asarray(PLAIN.draw()).astype(int)
    grey, red = (drawn == 90).all(axis=2), (drawn == [200, 0, 0]).all(axis=2)
    left = red[:, :600].any(axis=1).sum()
    assert grey.any(axis=1).sum() == round(560 * 40 / 60)
    assert left == round(200 * 40 / 60)  # the small ones


def test_long_words_and_no_evidence_are_no_trouble() -> None:
    long = replace(PLAIN, answer="opacity " * 40, others="normal " * 90, evidence=[], facts="word " * 200)
    assert long.draw().width == WIDTH
