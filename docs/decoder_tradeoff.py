"""The figure of docs/decoder.md that shows what the settings of `fast` exchange for AD50.

    python benchmarks/decoder.py …      as docs/decoder.md has it; makes results/decoder-ablation.json
    python docs/decoder_tradeoff.py

Reads that JSON, draws images/decoder-tradeoff.png: one panel for each measure that a setting may cost, over
AD50, each method a point. Bars are standard errors of its mean difference from `fast`, image by image.
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


def beside(values: list[float], of_fast: list[float]) -> tuple[float, float]:
    """The mean, and the standard error of its difference from that of `fast`."""
    gaps = [one - other for one, other in zip(values, of_fast, strict=True)]
    return fmean(values), stdev(gaps) / len(gaps) ** 0.5


def panel(axes: "Axes", found: Values, measure: str) -> None:
    for number, (method, values) in enumerate(found.items(), 1):
        across, wide = beside(values[OVER], found["fast"][OVER])
        up, high = beside(values[measure], found["fast"][measure])
        colour = FOR if method.startswith("fast") else AGAINST
        axes.errorbar(across, up, xerr=wide, yerr=high, color=colour, marker="o", markersize=4, linewidth=0.6)
        beside_it = ((4, 4), (4, -12), (-12, 4))[number % 3]  # so that neighbours do not cover each other
        axes.annotate(
            str(number), (across, up), beside_it, textcoords="offset points", fontsize=9, color=colour
        )
    falls = measure == "deletion"
    axes.set_xlabel(f"{OVER} (less is better)", color=MUTED)
    axes.set_title(f"{measure} ({'less' if falls else 'more'} is better)", fontsize=10, loc="left")
    axes.grid(color=HAIRLINE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    content = json.loads((HERE / "results" / "decoder-ablation.json").read_text(encoding="utf-8"))
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
