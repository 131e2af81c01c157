"""The report as HTML: one file, no script, no request to anywhere.

The templates are beside this file; everything that comes from users is escaped by them. A content security
policy forbids what the page does not need, and names its one stylesheet by its digest.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dprotonet.figures.meanings import MEANINGS
from dprotonet.report.chart import chart
from dprotonet.report.content import Report
from dprotonet.report.words import counted, percent, plain, points
from dprotonet.version import __version__

GENERATOR = "dprotonet report"
MARK = f'<meta name="generator" content="{GENERATOR}'
"""By this a file is known as one of ours."""


def render(report: Report) -> str:
    """The whole page."""
    curve = None if report.curve is None else chart(report.curve)
    return rendered("clinical.html" if report.clinical else "report.html", report=report, chart=curve)


def rendered(template: str, **content: object) -> str:
    """A page that extends page.html."""
    style = (files("dprotonet.report") / "templates" / "style.css").read_text(encoding="utf-8")
    return (
        environment()
        .get_template(template)
        .render(
            content,
            style=Markup(style),
            policy=policy(style),
            generator=f"{GENERATOR} {__version__}",
            version=__version__,
        )
    )


def policy(style: str) -> str:
    """Pictures from within the page and this very stylesheet; nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("dprotonet.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "percent": percent,
        "points": points,
        "plain": plain,
        "counted": counted,
        "path": _path,
        "shade": _shade,
    }
    found.globals["meanings"] = MEANINGS
    return found


def _path(places: Sequence[tuple[float, float]]) -> str:
    """An SVG polyline's points."""
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def _shade(count: int, total: int) -> int:
    """How dark a cell of the confusion matrix is, 0 to 5: by the root, since mistakes are small shares."""
    return 0 if not count else max(1, round(5 * (count / total) ** 0.5))
