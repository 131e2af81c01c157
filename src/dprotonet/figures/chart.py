"""matplotlib with the house style: a quiet figure to draw on, and its picture.

Only the object interface is used, never pyplot, and no global setting is changed, so that drawing here
leaves a user's own plots alone and is safe in threads.
"""

from typing import TYPE_CHECKING

from PIL import Image, ImageChops

from dprotonet.figures.style import HAIRLINE, INK, MARGIN, MUTED, PAPER, drawable, font, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150
BANNER = 14  # points of a title above all panels


def blank(width: float, height: float) -> tuple["Figure", "Axes"]:
    """An empty figure of that many inches, and its axes."""
    figure, [axes] = panels(width, height, rows=1, columns=1)
    return figure, axes


def panels(width: float, height: float, *, rows: int, columns: int) -> tuple["Figure", list["Axes"]]:
    """An empty figure of that many inches, and its axes in reading order."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    every = [figure.add_subplot(rows, columns, place + 1) for place in range(rows * columns)]
    for axes in every:
        _quieten(axes)
    if len(every) > 1:
        _part(figure)
    return figure, every


def headline(axes: "Axes", title: str | None, *, size: float = 13) -> None:
    """A title at the left, where reading begins."""
    if title:
        axes.set_title(
            title, loc="left", color=INK, fontsize=size, fontweight="bold", pad=14, parse_math=False
        )


def banner(figure: "Figure", title: str | None) -> None:
    """A title above all panels, at the left, on two lines if need be; an empty line sets it apart."""
    if title:
        lines = wrapped(
            title, DPI * figure.get_figwidth() - MARGIN, font(BANNER * DPI // 72, bold=True), lines=2
        )
        shown = "\n".join([*lines, ""])
        text = figure.suptitle(shown, x=0.01, ha="left", color=INK, fontsize=BANNER, fontweight="bold")
        text.set(parse_math=False, linespacing=0.95)


def rendered(figure: "Figure") -> Image.Image:
    """The figure as a picture, trimmed to an even margin: equal axes leave bands that no layout foresees."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    _replace_lacking(figure)
    canvas.draw()
    whole = Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
    drawn = ImageChops.difference(whole, Image.new("RGB", whole.size, PAPER)).getbbox()
    if drawn is None:
        return whole
    left, top, right, bottom = drawn
    framed = Image.new("RGB", (right - left + 2 * MARGIN, bottom - top + 2 * MARGIN), PAPER)
    framed.paste(whole.crop(drawn), (MARGIN, MARGIN))
    return framed


def _replace_lacking(figure: "Figure") -> None:
    """Marks for characters that the font lacks, in titles and legends; names at ticks have them already."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(drawable(text.get_text()))


def _part(figure: "Figure") -> None:
    """More room between panels, so that the labels of neighbouring axes do not run together."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(wspace=0.06, hspace=0.07)


def _quieten(axes: "Axes") -> None:
    axes.set_facecolor(PAPER)
    axes.tick_params(colors=MUTED, labelcolor=INK, length=0, pad=6)
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
