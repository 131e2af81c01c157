"""Ours beside the paper's as one HTML file: every table and figure, and what differs from the paper."""

from importlib.resources import files

from markupsafe import Markup
from PIL import Image

from dprotonet.experiment.reproduce.pages import NOTE, Pages, length, written
from dprotonet.experiment.reproduce.reproduction import Shown
from dprotonet.report.content import Picture
from dprotonet.report.embed import WIDE, embedded_picture
from dprotonet.report.page import GENERATOR, environment, policy
from dprotonet.version import __version__


def render_reproduction(pages: Pages) -> str:
    """The whole page."""
    style = (files("dprotonet.report") / "templates" / "style.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template("reproduction.html")
        .render(
            pages=pages,
            note=NOTE,
            pictures={item.name: _pictures(item) for item in pages.shown},
            written=written,
            length=length,
            style=Markup(style),
            policy=policy(style),
            generator=f"{GENERATOR} {__version__}",
            version=__version__,
        )
    )


def _pictures(item: Shown) -> list[tuple[str, Picture]]:
    found = []
    for name, path in item.pictures.items():
        with Image.open(path) as image:
            found.append((name, embedded_picture(image, f"{item.title}: {name}", longest=WIDE)))
    return found
