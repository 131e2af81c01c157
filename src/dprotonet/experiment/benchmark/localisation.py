"""Where the heatmaps of every finished run lie: each network with each way of explaining it.

    OUT/runs/ROW--COLUMN--seedN/localisation/…       a comparison, as of `dprotonet compare`

All runs of one data set are asked about the same test images, those whose truth is not empty. A network's own
maps, `similarity`, are left out where it has no prototypes. What was measured is kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData
from dprotonet.data.listed import ListedImages
from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.plan import Cell, LocalisationPlan
from dprotonet.experiment.benchmark.run import Benchmark, Failure, Progress
from dprotonet.experiment.claim import claimed
from dprotonet.experiment.classifier import Classifier
from dprotonet.experiment.compare.method import method
from dprotonet.experiment.compare.run import Comparison
from dprotonet.experiment.compare.table import Table
from dprotonet.experiment.model import Model
from dprotonet.metrics.faithfulness import RiseProtocol
from dprotonet.metrics.measures import Protocol

FOLDER = "localisation"


class Place(NamedTuple):
    """One line of the table before seeds are averaged."""

    row: str
    column: str
    seed: int
    method: str


@dataclass(frozen=True)
class Localisation:
    """The heatmaps of a benchmark's runs, by the plan's [localisation]."""

    benchmark: Benchmark
    plan: LocalisationPlan

    @cached_property
    def _chosen(self) -> dict[DataConfig, tuple[int, ...]]:
        return {}

    @property
    def protocol(self) -> Protocol:
        return Protocol(RiseProtocol(steps=self.plan.steps), top=self.plan.top)

    def run(self) -> Iterator[Progress]:
        """Measure what is missing, run by run; a run that cannot be measured is told and the others go on."""
        cells = self._cells()
        total = len(cells) * self.plan.images
        for number, cell in enumerate(cells):
            done = number * self.plan.images
            failure = None
            try:
                with claimed(self._folder(cell)):
                    for step in self._comparison(cell).run():
                        now = done + int(self.plan.images * step.done / step.total)
                        told = step.failure
                        lost = Failure(cell.folder, f"{told.method}: {told.reason}") if told else None
                        yield Progress(now, total, f"{cell.folder} {step.what}", failure=lost)
            except Exception as error:  # as in `Benchmark.run`
                failure = Failure(cell.folder, " ".join(f"{error}".split()) or type(error).__name__)
            yield Progress(done + self.plan.images, total, cell.folder, failure=failure)

    def values(self) -> dict[Place, Mapping[str, float]]:
        """The mean of every measure over images, NaN where there is none, of all that is measured."""
        found: dict[Place, Mapping[str, float]] = {}
        for cell in self._cells():
            if not (self._folder(cell) / "plan.json").is_file():
                continue
            table = Table.of(self._comparison(cell).results(), self.protocol)
            for row in table.rows:
                if row.images:
                    means = {name: interval.mean for name, interval in row.cells.items()}
                    found[Place(cell.row, cell.column, cell.seed, row.method)] = means
        return found

    def _cells(self) -> list[Cell]:
        finished = self.benchmark.results()
        return [cell for cell in self.benchmark.plan.cells if (cell.row, cell.column, cell.seed) in finished]

    def _folder(self, cell: Cell) -> Path:
        return self.benchmark.folder / "runs" / cell.folder / FOLDER

    def _comparison(self, cell: Cell) -> Comparison:
        model = Model.load(self._folder(cell).parent)
        classifier = Classifier.of_model(model, name=cell.row)
        test = self.benchmark.splits(cell.config.data).test
        own = [name for name in self.plan.methods if name != "similarity" or model.prototypes]
        return Comparison(
            classifier,
            test,
            [method(name, classifier) for name in own],
            self._folder(cell),
            protocol=self.protocol,
            chosen=self._images(cell, test),
        )

    def _images(self, cell: Cell, test: ImageData) -> tuple[int, ...]:
        data = cell.config.data
        if data not in self._chosen:
            self._chosen[data] = images_with_truth(test, self.plan.images)
        if not self._chosen[data]:
            raise UserError(f"no test image of {data.data} has truth; localisation needs masks or boxes")
        return self._chosen[data]


def images_with_truth(data: ImageData, count: int) -> tuple[int, ...]:
    """At most `count` images whose truth is not empty, drawn; a larger count has those of a smaller one."""
    found: list[int] = []
    for index in torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).tolist():
        if len(found) == count:
            break
        truth = data.truth(index) if isinstance(data, ListedImages) else data[index].truth
        if truth is not None and bool(truth.any()):
            found.append(index)
    return tuple(found)
