"""How faithful and how well placed the heatmaps of finished runs are: each network with what explains it.

    OUT/runs/ROW--COLUMN--seedN/localisation/…       a comparison, as of `dprotonet compare`

All runs of one data set are asked about the same test images. What was measured is kept, image by image, so
that a stopped table goes on, and a line more costs only itself.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData
from dprotonet.data.listed import ListedImages
from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.localisation_plan import Line, LocalisationPlan
from dprotonet.experiment.benchmark.plan import Cell
from dprotonet.experiment.benchmark.run import Benchmark, BenchmarkStep, Failure, config_digest
from dprotonet.experiment.compare.method import method, needs_prototypes
from dprotonet.experiment.compare.run import Comparison, Results
from dprotonet.experiment.compare.store import Record, Store
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.trained_model import TrainedModel

FOLDER = "localisation"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Localisation:
    """The heatmaps of a benchmark's runs, by the plan's [localisation]."""

    benchmark: Benchmark
    plan: LocalisationPlan

    @cached_property
    def _chosen(self) -> dict[DataConfig, tuple[int, ...]]:
        return {}

    def run(self) -> Iterator[BenchmarkStep]:
        """Measure what is missing, run by run; a run that cannot be measured is told and the others go on."""
        cells = self.cells()
        for number, cell in enumerate(cells):
            failure = None
            try:
                with claimed(self.folder(cell)):
                    for share, what, lost in self._measured(cell):
                        yield BenchmarkStep(
                            round(100 * (number + share)), 100 * len(cells), what, failure=lost
                        )
            except Exception as error:  # as in `Benchmark.run`
                failure = Failure(cell.folder, " ".join(f"{error}".split()) or type(error).__name__)
            yield BenchmarkStep(100 * (number + 1), 100 * len(cells), cell.folder, failure=failure)

    def _measured(self, cell: Cell) -> Iterator[tuple[float, str, Failure | None]]:
        """How far a run is, and what failed; one reason of one method is told once, by its first image."""
        told = set()
        for step in self._comparison(cell).run():
            failure, lost = step.failure, None
            if failure is not None and (failure.method, failure.reason) not in told:
                told.add((failure.method, failure.reason))
                lost = Failure(cell.folder, f"{failure.method} on {failure.image}: {failure.reason}")
            yield step.done / step.total, f"{cell.folder} {step.what}", lost

    def results(self, column: str) -> Results:
        """All that is measured of a column of the plan, by line; seeds are averaged image by image."""
        cells = [cell for cell in self.cells() if cell.column == column]
        records = {line.name: self._records(cells, line) for line in self.plan.line}
        places = {index: cell for cell in cells for index in self.images(cell)}
        names = {index: self.test(cell).name(index) for index, cell in places.items()}
        found = {index: record for kept in records.values() for index, record in kept.items()}
        lacking = sum(not record.located for record in found.values())
        return Results(records, (), names, lacking)

    def record(self, cell: Cell, line: Line, index: int) -> Record | None:
        """One image of one run, with its map."""
        return Store(self.folder(cell)).read(line.method, index)

    def _records(self, cells: Sequence[Cell], line: Line) -> dict[int, Record]:
        found: dict[int, list[Record]] = {}
        for cell in cells:
            for index in self.images(cell) if cell.row == line.row else ():
                record = self.record(cell, line, index)
                if record is not None:
                    found.setdefault(index, []).append(_light(record))
        return {index: _averaged(records) for index, records in sorted(found.items())}

    def cells(self) -> list[Cell]:
        """The finished runs that a line asks for."""
        finished, wanted = self.benchmark.results(), {line.row for line in self.plan.line}
        return [
            cell
            for cell in self.benchmark.plan.cells
            if cell.row in wanted and (cell.row, cell.column, cell.seed) in finished
        ]

    def folder(self, cell: Cell) -> Path:
        """Beside the run; where several plans share it, each with a protocol of its own, below the plan."""
        if self.benchmark.runs is not None:
            digest = config_digest(cell.runs[0].config)  # another config is another network
            return self.benchmark.folder / FOLDER / f"{cell.folder}-{digest}"
        return self.benchmark.explained(cell) / FOLDER

    def test(self, cell: Cell) -> ImageData:
        return self.benchmark.splits(cell.config.data).test

    def images(self, cell: Cell) -> tuple[int, ...]:
        """The test images that all networks of this data are asked about."""
        data = cell.config.data
        if data not in self._chosen:
            each, test = self.plan.images_per_class, self.test(cell)
            self._chosen[data] = (
                images_with_truth(test, self.plan.images, seed=self.plan.seed)
                if each is None
                else images_of_each_class(test, each, seed=self.plan.seed)
            )
        return self._chosen[data]

    def passed_over(self, column: str) -> tuple[str, ...]:
        """Names of images that could not be taken for want of truth, where only such are."""
        cells = [cell for cell in self.cells() if cell.column == column]
        if self.plan.images_per_class is not None or not cells:
            return ()
        test = self.test(cells[0])
        left = passed_over(test, self.images(cells[0]), self.plan.images, seed=self.plan.seed)
        return tuple(sorted(test.name(index) for index in left))

    def _comparison(self, cell: Cell) -> Comparison:
        model = TrainedModel.load(self.benchmark.explained(cell))
        classifier = Classifier.of_model(model, name=cell.row)
        chosen = self.images(cell)
        if not chosen:
            raise UserError(
                f"no test image of {cell.config.data.data} has truth; add masks or boxes (docs/data.md), "
                "or in a plan of your own set images_per_class in place of images"
            )
        able = [
            name for name in self.plan.methods_of(cell.row) if model.prototypes or not needs_prototypes(name)
        ]
        return Comparison(
            classifier,
            self.test(cell),
            [method(name, classifier) for name in able],
            self.folder(cell),
            protocol=self.plan.protocol,
            chosen=chosen,
        )


def images_with_truth(data: ImageData, count: int, *, seed: int = 0) -> tuple[int, ...]:
    """At most `count` images whose truth is not empty, drawn; a larger count has those of a smaller one."""
    found: list[int] = []
    for index in _shuffled(data, seed):
        if len(found) == count:
            break
        if _has_truth(data, index):
            found.append(index)
    return tuple(found)


def passed_over(data: ImageData, chosen: Sequence[int], count: int, *, seed: int = 0) -> tuple[int, ...]:
    """The images that `images_with_truth` drew and left, of classes of which it found others with truth.

    An image of a class that never has truth, as a healthy eye, lacks nothing.
    """
    drawn = _shuffled(data, seed)
    walked = drawn if len(chosen) < count else drawn[: drawn.index(chosen[-1])]
    found, classes = set(chosen), {data.labels[index] for index in chosen}
    return tuple(index for index in walked if index not in found and data.labels[index] in classes)


def _has_truth(data: ImageData, index: int) -> bool:
    try:
        truth = data.truth(index) if isinstance(data, ListedImages) else data[index].truth
    except UserError as error:  # a mask that is broken or gone
        _log.warning("%s: %s", data.name(index), error)
        return False
    return truth is not None and bool(truth.any())


def images_of_each_class(data: ImageData, count: int, *, seed: int = 0) -> tuple[int, ...]:
    """`count` images of every class, or all where it has fewer; a larger count has those of a smaller one.

    Unstated: which ten test images of each class the paper drew at random. Ours are drawn by a seed.
    """
    found: dict[int, list[int]] = {}
    for index in _shuffled(data, seed):
        of_class = found.setdefault(data.labels[index], [])
        if len(of_class) < count:
            of_class.append(index)
    return tuple(sorted(index for of_class in found.values() for index in of_class))


def _shuffled(data: ImageData, seed: int) -> list[int]:
    drawn: list[int] = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
    return drawn


def _light(record: Record) -> Record:
    """Without its map, of which the extremes stay: those of 2,000 images and ten lines fill the memory."""
    return record._replace(heatmap=torch.stack(record.heatmap.aminmax()).unsqueeze(0))


def _averaged(records: Sequence[Record]) -> Record:
    """One image over seeds."""
    if len(records) == 1:
        return records[0]
    first = records[0]
    return first._replace(
        values={name: fmean(record.values[name] for record in records) for name in first.values},
        deletion=_mean([record.deletion for record in records]),
        insertion=_mean([record.insertion for record in records]),
        overlaps={name: _mean([record.overlaps[name] for record in records]) for name in first.overlaps},
        seconds=fmean(record.seconds for record in records),
    )


def _mean(curves: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(curves)).mean(dim=0)
