"""One line a method: the mean over images, in a colour and dash that tell twelve methods apart.

What `faithfulness_curves` and `overlap_sweep` share. Colours are Okabe and Ito's, and neighbours differ in
their dashes too, so that a print without colours can still be read. The first method is the featured one;
controls, which explain nothing, are grey.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dprotonet.figures.style import HAIRLINE, INK, MUTED, PAPER, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

FIRST = "#0072b2"  # of the featured method alone
COLOURS = ("#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a3e65")
DASHES = ((), (6, 1.6), (6, 1.6, 1.2, 1.6), (1.6, 1.2))
GREYS = ("#7d848e", "#a3aab3", "#5f6670")
CONTROLS = ("random", "centre", "center", "centre gaussian", "all but one", "fake", "fake cam")
FEATURED, OTHER = 3.0, 1.6  # widths of lines
LONGEST, ENDING = 26, 10  # characters of a method's name, and of its end where it is too long
ROUNDING = 1e-3  # by which a value in half precision may leave [0, 1]


@dataclass(frozen=True)
class LineStyle:
    """How a method's line is drawn; an empty dash is a solid line."""

    colour: str
    dash: tuple[float, ...]
    width: float

    def line(self, places: Tensor, values: Tensor, label: str = "") -> "Line2D":
        """The line, the featured one above all others."""
        from matplotlib.lines import Line2D

        line = Line2D(places, values, color=self.colour, linewidth=self.width, label=label)
        line.set_linestyle((0, self.dash) if self.dash else "solid")
        line.set(zorder=2 + self.width, dash_capstyle="butt", solid_capstyle="round", clip_on=False)
        return line


@dataclass(frozen=True)
class Mean:
    """Mean (S,) of rows (N, S), half the width of its 95 % band (S,), and how many rows went in."""

    values: Tensor
    margin: Tensor
    count: int

    @property
    def area(self) -> float:
        """Under the mean, over a unit interval; the same as the mean of the areas."""
        return float(torch.trapezoid(self.values, dx=1 / (len(self.values) - 1)))


def mean_of(rows: Tensor) -> Mean:
    """The mean of the rows (N, S) without NaN; the band is that of a normal mean, 0 for a single row."""
    known = rows.detach().cpu().double()
    known = known[~known.isnan().any(dim=1)].clamp(0, 1)
    spread = known.std(dim=0) if len(known) > 1 else torch.zeros_like(known.sum(dim=0))
    return Mean(known.mean(dim=0), 1.96 * spread / max(len(known), 1) ** 0.5, len(known))


def check_rows(what: str, rows: Tensor, *, columns: int | None = None, shares: bool = True) -> None:
    """Refuse what is no table (N, `columns`), or (N, 2 or more), of `shares`, in [0, 1] or NaN."""
    fits = rows.ndim == 2 and (rows.shape[1] >= 2 if columns is None else rows.shape[1] == columns)
    if not fits:
        wanted = "2 or more" if columns is None else columns
        raise ValueError(f"{what} has shape {tuple(rows.shape)}; it must be (N, {wanted}), one row an image")
    known = rows[~rows.isnan()]
    if shares and ((known < -ROUNDING) | (known > 1 + ROUNDING)).any():
        raise ValueError(f"{what} reaches from {known.min():.4g} to {known.max():.4g}; it must be in [0, 1]")


def is_control(name: str) -> bool:
    """Whether a method is a map that explains nothing, judged by its name."""
    return " ".join(name.lower().replace("-", " ").replace("_", " ").split()) in CONTROLS


def styles_of(methods: Iterable[str]) -> dict[str, LineStyle]:
    """A style for every method, in the order given; the first is the featured one, solid and thicker."""
    first, *rest = methods
    controls = [name for name in rest if is_control(name)]
    others = [name for name in rest if not is_control(name)]
    styles = {first: LineStyle(GREYS[0] if is_control(first) else FIRST, (), FEATURED)}
    styles |= {name: _grey(place) for place, name in enumerate(controls)}
    styles |= {name: _bright(place) for place, name in enumerate(others)}
    return {name: styles[name] for name in (first, *rest)}


def draw_means(axes: "Axes", means: Mapping[str, Mean], *, span: tuple[int, int], band: bool = False) -> None:
    """Every method's mean from one end of `span` to the other; a panel without any values says so."""
    for name, style in styles_of(means).items():
        mean = means[name]
        places = torch.linspace(*span, len(mean.values))
        if mean.count and band and not is_control(name):
            _draw_band(axes, places, mean, style)
        if mean.count:
            axes.add_line(style.line(places, mean.values))
    if not any(mean.count for mean in means.values()):
        text = axes.text(0.5, 0.5, "no values", color=MUTED, ha="center", va="center")
        text.set(transform=axes.transAxes, backgroundcolor=PAPER)


def legend_lines(means: Mapping[str, Mean], *, area: bool = False) -> list["Line2D"]:
    """For every method its line, name and, if asked for, area; what has fewer images or none says so."""
    most = max(mean.count for mean in means.values())
    nowhere = torch.empty(0)
    lines = []
    for name, style in styles_of(means).items():
        line = style.line(nowhere, nowhere, label=_label(name, means[name], most=most, area=area))
        line.set_visible(means[name].count > 0)
        lines.append(line)
    return lines


def calm(axes: "Axes") -> None:
    """Per cent below, a quiet grid, no box."""
    from matplotlib.ticker import MaxNLocator, MultipleLocator, PercentFormatter

    axes.set_xlim(0, 100)
    axes.xaxis.set_major_locator(MultipleLocator(20))
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=100, decimals=0, symbol=" %"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    _unbox(axes)


def labelled(axes: "Axes", *, across: str, up: str, legend: str | None = None) -> None:
    """Names of both axes, a quiet grid, no box, and the legend of all lines beside the panel."""
    _unbox(axes)
    axes.set_xlabel(across, color=MUTED)
    axes.set_ylabel(up, color=MUTED)
    beside = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9, title=legend)
    beside.set_alignment("left")
    beside.get_title().set_fontsize(9)
    plain_text(beside)


def _unbox(axes: "Axes") -> None:
    axes.grid(axis="y", color=HAIRLINE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def plain_text(legend: "Legend") -> None:
    """Names of methods are names, not formulae: a dollar is a dollar."""
    legend.get_title().set_color(MUTED)
    for text in legend.get_texts():
        text.set(parse_math=False, color=INK)


def cut(name: str) -> str:
    """The name with at most `LONGEST` characters; its end is kept, where the names of folders differ."""
    name = " ".join(name.split())
    start = name[: LONGEST - ENDING - 1].rstrip()
    return name if len(name) <= LONGEST else f"{start}…{name[-ENDING:]}"


def _bright(place: int) -> LineStyle:
    """Six colours and four dashes share a factor of two: after twelve the dashes move on by one."""
    dash = DASHES[(place + place // 12) % len(DASHES)]
    return LineStyle(COLOURS[place % len(COLOURS)], dash, OTHER)


def _grey(place: int) -> LineStyle:
    return LineStyle(GREYS[place % len(GREYS)], DASHES[-1 - place % len(DASHES)], OTHER)


def _draw_band(axes: "Axes", places: Tensor, mean: Mean, style: LineStyle) -> None:
    low, high = (mean.values - mean.margin).clamp_min(0), (mean.values + mean.margin).clamp_max(1)
    axes.fill_between(
        places,
        low,
        high,
        color=style.colour,
        alpha=0.16 if style.width == FEATURED else 0.1,
        linewidth=0,
        zorder=1,
    )


def _label(name: str, mean: Mean, *, most: int, area: bool) -> str:
    words = cut(name)
    if not mean.count:
        return f"{words}: no values"
    value = f" {number(mean.area, decimals=3)}" if area else ""
    return words + value + (f" ({mean.count} of {most} images)" if mean.count < most else "")
