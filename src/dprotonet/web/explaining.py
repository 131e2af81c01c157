"""The explaining thread's work: maps that grow, sent as small previews while they do."""

import base64
from collections.abc import Sequence
from typing import Any

from dprotonet.experiment.explaining.row_marks import row_marks
from dprotonet.experiment.explaining.streaming import GrowingMap, grow_class_map, grow_evidence, interruptible
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.web.image_record import ImageRecord, as_map, map_key, small_map
from dprotonet.web.job import Job

PREVIEW = 56  # places a side of a map that is still growing


class Explaining:
    """Has a network of its own, since explaining borrows it."""

    def __init__(self, model: TrainedModel, preset: Any) -> None:
        self.model, self.preset = model, preset

    def places(self, seen: ImageRecord, prototypes: Sequence[int], job: Job) -> None:
        """Each of the prototypes in the image and in its source, what the row is worth; kept with the image.

        The latter takes a tenth or less of the passes that the former does.
        """
        items = {item.prototype: item for item in seen.answer.evidence(0)}
        unplaced = [items[number] for number in prototypes if not seen.places.find(str(number))]
        unmarked = [items[number] for number in prototypes if not seen.marks.find(str(number))]
        with interruptible(self.model, job.check):
            if unplaced:
                rows = grow_evidence(
                    self.model, seen.pixels, unplaced, preset=self.preset, watch=lambda now: _tell(job, now)
                )
                for row in rows:
                    seen.keep(row)
            if unmarked:
                (marks,) = row_marks(self.model, [seen.pixels], [unmarked])
                for item, mark in zip(unmarked, marks, strict=True):
                    seen.marks.add(mark, key=str(item.prototype))

    def class_map(
        self, seen: ImageRecord, label: int, method: str, job: Job, versus: int | None = None
    ) -> None:
        """The map of a class, or of what is ahead of another there, kept with the image."""
        key = map_key(label, method, versus)
        if seen.maps.find(key) is not None:
            return
        with interruptible(self.model, job.check):
            found = grow_class_map(
                self.model,
                seen.pixels,
                label,
                versus=versus,
                method=method,
                preset=self.preset,
                watch=lambda now: _tell(job, now),
            )
        seen.maps.add(as_map(found), key=key)


def _tell(job: Job, now: GrowingMap) -> None:
    job.check()
    names = [f"{now.where}/{number}" for number in now.prototypes] or [now.where]
    previews = {name: _preview(raw) for name, raw in zip(names, now.raw, strict=True)}
    job.progress(now.done, now.total, previews)


def _preview(raw: Any) -> dict[str, Any]:
    side = min(PREVIEW, raw.shape[-1])
    return {"side": side, "data": base64.b64encode(small_map(raw, side)).decode()}
