"""Ours beside the paper's as one HTML file: every table and figure, and what differs from the paper."""

from PIL import Image

from dprotonet.experiment.reproduce.pages import NOTE, Pages, length, written
from dprotonet.experiment.reproduce.reproduction import Shown
from dprotonet.report.content import Picture
from dprotonet.report.embed import WIDE, embedded_picture
from dprotonet.report.page import rendered


def render_reproduction(pages: Pages) -> str:
    """The whole page."""
    pictures = {item.name: _pictures(item) for item in pages.shown}
    return rendered(
        "reproduction.html", pages=pages, note=NOTE, pictures=pictures, written=written, length=length
    )


def _pictures(item: Shown) -> list[tuple[str, Picture]]:
    found = []
    for name, path in item.pictures.items():
        with Image.open(path) as image:
            found.append((name, embedded_picture(image, f"{item.title}: {name}", longest=WIDE)))
    return found
