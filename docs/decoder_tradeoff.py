"""The figure of docs/decoder.md that shows what `trust`, `focus` and `softness` of `fast` exchange.

    python benchmarks/decoder.py …      as docs/decoder.md has it; makes results/decoder-tradeoff.json
    python docs/decoder_tradeoff.py

Reads that JSON, draws images/decoder-tradeoff.png: one panel for each measure that a setting may cost, over
AD50, each method a point with the standard error of its mean over images.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from dprotonet.figures.chart import panels, rendered
from dprotonet.figures.style import AGAINST, FOR, HAIRLINE, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).resolve().parent
PANELS = ("DICE", "energy", "deletion", "AG")
OVER = "AD50"
CONTROLS = ("random", "centre", "all but one")
Values = Mapping[str, Mapping[str, list[float]]]


def centre(values: list[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    return fmean(values), stdev(values) / len(values) ** 0.5


def panel(axes: "Axes", found: Values, measure: str) -> None:
    for number, (method, values) in enumerate(found.items(), 1):
        (across, wide), (up, high) = centre(values[OVER]), centre(values[measure])
        colour = FOR if method.startswith("fast") else AGAINST
        axes.errorbar(across, up, xerr=wide, yerr=high, color=colour, marker="o", markersize=4, linewidth=0.6)
        axes.annotate(str(number), (across, up), (4, 4), textcoords="offset points", fontsize=9, color=colour)
    falls = measure == "deletion"
    axes.set_xlabel(f"{OVER} (less is better)", color=MUTED)
    axes.set_title(f"{measure} ({'less' if falls else 'more'} is better)", fontsize=10, loc="left")
    axes.grid(color=HAIRLINE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    content = json.loads((HERE / "results" / "decoder-tradeoff.json").read_text(encoding="utf-8"))
    found = {method: values for method, values in content["values"].items() if method not in CONTROLS}
    figure, every = panels(9.6, 7.8, rows=2, columns=2)
    for axes, measure in zip(every, PANELS, strict=True):
        panel(axes, found, measure)
    names = [f"{number} {method}" for number, method in enumerate(found, 1)]
    said = "\n".join("     ".join(names[start : start + 4]) for start in range(0, len(names), 4))
    figure.supxlabel(said, fontsize=8, color=MUTED)
    rendered(figure).save(HERE / "images" / "decoder-tradeoff.png")


if __name__ == "__main__":
    main()
