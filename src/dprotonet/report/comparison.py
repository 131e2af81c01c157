"""What `dprotonet compare` measured for this run, in words: read from the table.json of its folder."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import CONTROLS
from dprotonet.experiment.model import Model
from dprotonet.files import read_json
from dprotonet.metrics.measures import Measure, Protocol
from dprotonet.report.content import (
    ComparisonSection,
    Fact,
    MeasureCell,
    MeasureColumn,
    MeasureRow,
    MeasureTable,
    Picture,
)
from dprotonet.report.embed import WIDE, embedded_picture
from dprotonet.report.measure_words import PLACES, meaning
from dprotonet.training.checkpoint import weights_digest

_PICTURES = {
    "curves.png": "Two charts: the class's probability while the pixels that a heatmap calls decisive are "
    "removed first, and while they are put back first, a line for each method.",
    "grid.png": "A grid of test images with the heatmap of every method laid over them.",
}


def comparison(model: Model, folder: Path | None) -> ComparisonSection | None:
    """The comparison in `folder`, or one of this model in its run folder; None where there is none."""
    if folder is not None:
        return _read(folder, weights_digest(model.network))
    assert model.folder is not None
    found = sorted(path.parent for path in model.folder.glob("*/table.json"))
    weights = weights_digest(model.network) if found else ""
    own = (place for place in found if _compared_weights(place) == weights)
    return next((_read(place, weights) for place in own), None)


def _read(folder: Path, weights: str) -> ComparisonSection:
    path = folder / "table.json"
    if not path.is_file():
        raise UserError(f"--compare {folder} has no table.json; name the --out folder of dprotonet compare")
    if _compared_weights(folder) != weights:
        raise UserError(f"--compare {folder} is of another network; run dprotonet compare on this run")
    try:
        return _told(read_json(path), folder)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); run dprotonet compare again") from None


def _compared_weights(folder: Path) -> str | None:
    """Digest of the weights that a comparison was of."""
    try:
        plan = read_json(folder / "plan.json")
        return str(plan["weights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _told(content: Mapping[str, Any], folder: Path) -> ComparisonSection:
    known = [_measure(name) for name in content["rows"][0]["measures"]] if content["rows"] else []
    kinds = {
        "Faithfulness: do the marked places really decide?": [m for m in known if m.name not in PLACES],
        "Localisation: do the marked places lie on the object?": [m for m in known if m.name in PLACES],
    }
    protocol = content["protocol"]
    return ComparisonSection(
        folder=folder.name,
        images=int(protocol["images"]),
        tables=tuple(_table(title, kind, content) for title, kind in kinds.items() if kind),
        protocol=tuple(Fact(str(name), str(value)) for name, value in protocol.items() if name != "network"),
        pictures=tuple(_pictures(folder)),
    )


def _measure(name: str) -> Measure:
    """The measure of that name; AD50 and the like carry their share of pixels in it."""
    share = re.fullmatch(r"A[DI](\d+(?:\.\d+)?)", name)
    protocol = Protocol(keep=float(share[1]) / 100) if share else Protocol()
    return next((m for m in protocol.measures if m.name == name), Measure(name, True, 3))


def _table(title: str, measures: Sequence[Measure], content: Mapping[str, Any]) -> MeasureTable:
    columns = [MeasureColumn(m.name, "higher" if m.higher else "lower", meaning(m.name)) for m in measures]
    best = content["surely best"]
    rows = [
        MeasureRow(
            method=str(row["method"]),
            control=row["method"] in CONTROLS,
            cells=tuple(
                _cell(row["measures"][m.name], m, best.get(m.name) == row["method"]) for m in measures
            ),
            seconds=_written(row["seconds"], 2),
        )
        for row in content["rows"]
    ]
    return MeasureTable(title, tuple(columns), tuple(rows))


def _cell(interval: Mapping[str, float | None], measure: Measure, best: bool) -> MeasureCell:
    mean, low, high = (interval[name] for name in ("mean", "low", "high"))
    reach = None if low is None or high is None else (high - low) / 2
    around = "" if mean is None or reach is None else f" ± {_written(reach, measure.digits)}"
    return MeasureCell(_written(mean, measure.digits) + around, best)


def _written(value: float | None, digits: int) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _pictures(folder: Path) -> list[Picture]:
    """Those that can be read; a damaged picture is no reason to go without the numbers."""
    found = []
    for name, alt in _PICTURES.items():
        try:
            with Image.open(folder / name) as image:
                found.append(embedded_picture(image, alt, longest=WIDE))
        except (OSError, ValueError):
            continue
    return found
