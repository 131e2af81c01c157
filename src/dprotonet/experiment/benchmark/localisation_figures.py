"""The pictures of a table of heatmaps, a set for every column of its plan, over all lines.

Deletion and insertion curves, the overlaps over all thresholds, and the same images as every line explains
them: the paper's figures of that kind.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.experiment.benchmark.localisation import Localisation
from dprotonet.experiment.benchmark.localisation_plan import Line
from dprotonet.experiment.benchmark.plan import Cell
from dprotonet.experiment.compare.files import evenly, overlaps_of
from dprotonet.experiment.compare.method import DECODERS
from dprotonet.experiment.compare.run import Results
from dprotonet.experiment.explaining.pictures import drawn_truth, save_picture
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import GridAnswer, comparison_grid, faithfulness_curves, overlap_sweep

SHOWN = 6  # images of the grid


def save_figures(localisation: Localisation, column: str, results: Results, stem: str) -> dict[str, str]:
    """Draw what is known of a column beside the table; the paths by what they show."""
    drawn: dict[str, Image.Image] = {}
    if any(results.records.values()):
        drawn["curves"] = _curves(localisation, column, results)
        drawn["grid"] = _grid(localisation, column, results)
    if any(record.located for found in results.records.values() for record in found.values()):
        drawn["sweep"] = _sweep(localisation, column, results)
    saved = {}
    for what, picture in drawn.items():
        path = localisation.benchmark.folder / f"{stem}-{what}.png"
        save_picture(picture, path)
        saved[f"{what} of maps on {column}"] = str(path)
    return saved


def _curves(localisation: Localisation, column: str, results: Results) -> Image.Image:
    """Deletion and insertion."""
    deletion, insertion = {}, {}
    for label, line in _labelled(localisation):
        records = list(results.records[line.name].values())
        if records:
            deletion[label] = torch.stack([record.deletion for record in records])
            insertion[label] = torch.stack([record.insertion for record in records])
    pace = localisation.plan.protocol.facts["deletion, insertion"]
    title = f"{column}, {max(map(len, deletion.values()))} images, {pace}"
    return faithfulness_curves(deletion, insertion, title=title)


def _sweep(localisation: Localisation, column: str, results: Results) -> Image.Image:
    """DICE, IOU, PPV and sensitivity over all thresholds."""
    found = {}
    for label, line in _labelled(localisation):
        overlaps = overlaps_of(list(results.records[line.name].values()))
        if overlaps:
            found[label] = overlaps
    count = max(len(overlaps["DICE"]) for overlaps in found.values())
    title = f"{column}, {count} images with truth"
    return overlap_sweep(found, mark=localisation.plan.top, title=title)


def _grid(localisation: Localisation, column: str, results: Results) -> Image.Image:
    """A few images with the maps of all lines but controls, of the first seed."""
    cells: dict[str, Cell] = {}
    for cell in localisation.cells():
        if cell.column == column:
            cells.setdefault(cell.row, cell)
    some = next(iter(cells.values()))
    test, chosen = localisation.test(some), evenly(sorted(localisation.images(some)), SHOWN)
    samples = [test[index] for index in chosen]
    lines = [line for line in localisation.plan.line if not line.control] or localisation.plan.line
    maps: dict[str, list[Tensor | None]] = {}
    for line in lines:
        records = [
            localisation.record(cells[line.row], line, index) if line.row in cells else None
            for index in chosen
        ]
        maps[line.name] = [None if record is None else record.heatmap for record in records]
    given = {row: _answers(localisation, cell, samples) for row, cell in cells.items()}
    return comparison_grid(
        [sample.image for sample in samples],
        maps,
        truth=[drawn_truth(sample) for sample in samples],
        answers={line.name: given[line.row] for line in lines if line.row in given},
        notes={line.name: line.row for line in lines if line.row not in line.name},
        titles=[test.classes[sample.label] for sample in samples],
        captions=[Path(sample.name).name for sample in samples],
    )


def _answers(localisation: Localisation, cell: Cell, samples: Sequence[Sample]) -> list[GridAnswer]:
    """What a network predicts: the class that its maps are of."""
    model = TrainedModel.load(localisation.benchmark.explained(cell))
    found = [model.predict(sample.image) for sample in samples]
    return [
        GridAnswer(prediction.class_name, prediction.label == sample.label)
        for prediction, sample in zip(found, samples, strict=True)
    ]


def _labelled(localisation: Localisation) -> list[tuple[str, Line]]:
    """All lines, the first by the decoder at the head, which figures feature.

    A control has its plain name, which they draw in grey, unless two lines have it.
    """
    lines = localisation.plan.line
    featured = next((line for line in lines if line.method.partition(":")[0] in DECODERS), lines[0])
    methods = [line.method for line in lines]
    return [
        (line.method if line.control and methods.count(line.method) == 1 else line.name, line)
        for line in sorted(lines, key=lambda line: line != featured)
    ]
