"""matplotlib with the house style: a quiet figure to draw on, and its picture.

Only the object interface is used, never pyplot, and no global setting is changed, so that drawing here
leaves a user's own plots alone and is safe in threads.
"""

from typing import TYPE_CHECKING

from PIL import Image, ImageChops

from dprotonet.figures.style import HAIRLINE, INK, MARGIN, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150


def blank(width: float, height: float) -> tuple["Figure", "Axes"]:
    """An empty figure of that many inches, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_facecolor(PAPER)
    axes.tick_params(colors=MUTED, labelcolor=INK, length=0, pad=6)
    for spine in axes.spines.values():
        spine.set_color(HAIRLINE)
    return figure, axes


def headline(axes: "Axes", title: str | None) -> None:
    """A title at the left, where reading begins."""
    if title:
        axes.set_title(title, loc="left", color=INK, fontsize=13, fontweight="bold", pad=14, parse_math=False)


def rendered(figure: "Figure") -> Image.Image:
    """The figure as a picture, trimmed to an even margin: equal axes leave bands that no layout foresees."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    whole = Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")
    drawn = ImageChops.difference(whole, Image.new("RGB", whole.size, PAPER)).getbbox()
    if drawn is None:
        return whole
    left, top, right, bottom = drawn
    framed = Image.new("RGB", (right - left + 2 * MARGIN, bottom - top + 2 * MARGIN), PAPER)
    framed.paste(whole.crop(drawn), (MARGIN, MARGIN))
    return framed
