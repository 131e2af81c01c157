"""The heatmaps of a report: kept ones are read, the others made as far as it was wished."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from dprotonet.experiment.explaining.explain import ExplainProgress, explained_rows
from dprotonet.experiment.explaining.progress import StepCounter
from dprotonet.experiment.explaining.source_maps import SourceMaps
from dprotonet.experiment.model import Model
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM
from dprotonet.progress import NamedProgress
from dprotonet.report.cases import Places, Studied
from dprotonet.report.options import ReportOptions


@dataclass(frozen=True)
class Heatmaps:
    """Makes and reads the heatmaps of one model."""

    model: Model
    wishes: ReportOptions
    on_progress: NamedProgress

    def places(self, images: Sequence[Studied], known: Mapping[tuple[int, int], Tensor]) -> Places:
        """Where the images look like their prototypes, and where all prototypes lie in their sources."""
        made = Places({}, {}) if self.wishes.heatmaps == "stored" else self._made(images, known)
        return Places({**known, **made.images}, {**self._sources(made.sources), **made.sources}, made.marks)

    def _made(self, images: Sequence[Studied], known: Mapping[tuple[int, int], Tensor]) -> Places:
        chosen = [
            [item for item in image.items(self.wishes.top) if (image.index, item.prototype) not in known]
            for image in images
        ]
        rows = explained_rows(
            self.model,
            [image.image for image in images],
            chosen,
            preset=self.wishes.preset,
            on_step=self._advance,
        )
        pairs = [(image, row) for image, found in zip(images, rows, strict=True) for row in found]
        return Places(
            {(image.index, row.item.prototype): row.input.heatmap.cpu() for image, row in pairs},
            {row.item.prototype: row.source.heatmap.cpu() for _, row in pairs},
            {(image.index, row.item.prototype): row.mark for image, row in pairs if row.mark is not None},
        )

    def _advance(self, now: ExplainProgress) -> None:
        self.on_progress(f"explaining {now.what}", now.done, now.total)

    def _advance_all(self, done: int, total: int, _: Step) -> None:
        self.on_progress("explaining all prototypes", done, total)

    def _sources(self, known: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Of all prototypes but the known: those that are kept, and the others too if all are wished."""
        maps = SourceMaps(self.model, MDM(preset=self.wishes.preset))
        wanted = [record.prototype for record in self.model.prototypes if record.prototype not in known]
        found = maps.stored(wanted)
        if self.wishes.heatmaps == "all":
            lacking = [number for number in wanted if number not in found]
            counter = StepCounter(len(lacking))
            found |= maps.made(lacking, observer=lambda some: counter.next(len(some), self._advance_all))
        return {number: item.heatmap.cpu() for number, item in found.items()}
