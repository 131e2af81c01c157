"""What the routes ask for: images are looked at by one thread, explained by another, each with a short queue.

Large uploads are unpacked by a third, within a bound of bytes and pixels.

A slow explanation never holds up a prediction: the explaining thread has a network of its own. Reading the
run's data and going over it have threads too. Nothing here knows HTTP.
"""

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from dprotonet.data.upload import Upload, UploadLimits, read_upload, stated_pixels
from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.explaining.explainers import CONTRAST, available_explainers
from dprotonet.experiment.explaining.pictures import place_picture, source_image
from dprotonet.experiment.explaining.source_maps import mapped_source
from dprotonet.experiment.explaining.streaming import twin
from dprotonet.experiment.prototypes.parts import name_parts
from dprotonet.experiment.trained.plain_model import PlainModel
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.web.explaining import Explaining
from dprotonet.web.image_record import ImageRecord, Map, RowPlace, map_key, png
from dprotonet.web.job import Job
from dprotonet.web.reviewing import Reviewing
from dprotonet.web.room import Room, give_back_memory
from dprotonet.web.samples import Samples, Split
from dprotonet.web.saving import Saving
from dprotonet.web.store import BoundedStore
from dprotonet.web.worker import Busy, Worker

logger = logging.getLogger(__name__)

_SMALL = 2_000_000  # pixels: unpacked in less time than a prediction takes
_LARGE_WAITING = 16


@dataclass(frozen=True)
class ServiceSettings:
    """How much is accepted and kept."""

    limits: UploadLimits = field(default_factory=UploadLimits)
    preset: Any = "fast"  # of the decoder, a name or a preset
    images: int = 24  # kept in memory
    jobs: int = 64
    predictions_waiting: int = 16
    waiting_megabytes: float = 100.0  # of uploads, together
    waiting_megapixels: float = 250.0  # of those that are large
    explanations_waiting: int = 4


class NotFound(LookupError):
    """An id or a number that is not known, or no longer."""


class NotYet(LookupError):
    """A map that can be had, but nobody asked for it, or the work on it is not done."""


class Service:
    """One trained run, served; or a network from elsewhere."""

    def __init__(self, model: TrainedModel, settings: ServiceSettings | None = None) -> None:
        self.model, self.settings = model, settings or ServiceSettings()
        self.plain = isinstance(model, PlainModel)  # a network that was not trained here
        self.name = _name(model)
        self.number = 0
        self.beside: tuple[Service, ...] = ()  # another run that is served too
        self.key = secrets.token_urlsafe(6)  # browsers keep pictures under it
        self.images: BoundedStore[ImageRecord] = BoundedStore(self.settings.images)
        self.jobs: BoundedStore[Job] = BoundedStore(self.settings.jobs)
        self.methods = available_explainers(model)
        self.predicting = Worker("predicting", waiting=self.settings.predictions_waiting)
        self.unpacking = Worker("unpacking", waiting=_LARGE_WAITING, when_idle=give_back_memory)
        self.room = Room(
            megabytes=self.settings.waiting_megabytes, megapixels=self.settings.waiting_megapixels
        )
        self.decoding = Worker(
            "explaining", waiting=self.settings.explanations_waiting, when_idle=give_back_memory
        )
        self.reading = Worker("reading", waiting=64)
        self.answering = Worker("answering", waiting=32)  # what takes milliseconds waits for nothing slow
        self.samples = Samples(model, self.reading)
        self.preparing = Worker("preparing", waiting=4, when_idle=give_back_memory)
        self.reviewing = Reviewing(model, self.samples, self.preparing, say=in_words)
        self.saving = Saving(model, self.samples)
        self.explaining = Explaining(twin(model), self.settings.preset)

    @property
    def together(self) -> "tuple[Service, ...]":
        """All runs that are served, by their numbers."""
        return tuple(sorted((self, *self.beside), key=lambda one: one.number))

    @property
    def waiting(self) -> dict[str, int]:
        return {worker.name: worker.waiting for worker in self._workers()}

    def close(self) -> None:
        """Stop all work."""
        saving = [self.saving.job] if self.saving.job is not None and not self.saving.job.ended else []
        for job in [*saving, *self.jobs.values()]:
            job.cancel()
        for worker in self._workers():
            worker.close()
        if any(job.state != "done" for job in saving):
            logger.warning("stopped before the cleaned run was saved: nothing of it is kept")

    def _workers(self) -> list[Worker]:
        return [self.predicting, self.unpacking, self.decoding, self.reading, self.answering, self.preparing]

    # ── images ──

    def look(self, data: bytes, name: str, key: str | None = None) -> "Future[str]":
        """The id of an image that was sent to us (`key`, or a new one), once it has been looked at.

        Large ones are unpacked by a thread of their own, so that small ones do not wait for them.
        """
        size, limits = self.model.config.data.image_size, self.settings.limits
        pixels = stated_pixels(data)

        def look(image: Upload) -> str:
            return self._look(name, image.pixels, image.picture, key=key)

        def small() -> str:
            return look(read_upload(data, size=size, limits=limits))

        def large() -> str:
            image = read_upload(data, size=size, limits=limits)
            return self.predicting.submit(lambda: look(image)).result()

        if pixels is not None and pixels <= _SMALL:
            return self.room.during(len(data), 0, lambda: self.predicting.submit(small))
        expected = len(data) if pixels is None else pixels  # of DICOM files: as if a pixel were a byte
        return self.room.during(len(data), expected, lambda: self.unpacking.submit(large))

    def look_at_sample(self, split: Split, index: int, key: str | None = None) -> "Future[str]":
        """The id of an image of the run's own data, once it has been looked at."""

        def task() -> str:
            name, label, pixels = self.samples.pixels(split, index)
            return self._look(name, pixels, pixels, key=key, truth=self.model.classes[label])

        return self.predicting.submit(task)

    def look_at_theirs(self, theirs: "Service", index: int, key: str) -> "Future[str]":
        """The same for a test image of another run; as this run's own data has it, if it is the same data."""

        def task() -> str:
            own = self.samples.same(theirs.samples, index)
            name, label, picture = (theirs if own is None else self).samples.pixels("test", index)
            truth = theirs.model.classes[label]
            return self._look(name, self.model.pixels(picture), picture, key=key, truth=truth)

        return self.predicting.submit(task)

    def _look(
        self, name: str, pixels: Tensor, picture: Tensor, *, key: str | None, truth: str | None = None
    ) -> str:
        extent, answer = (picture.shape[-1], picture.shape[-2]), self.model.answer(pixels)
        return self.images.add(ImageRecord(name, pixels, png(picture), extent, answer, truth), key=key)

    def image(self, key: str) -> ImageRecord:
        seen = self.images.find(key)
        if seen is None:
            raise NotFound("this image is not known, or no longer: only the latest are kept; send it again")
        return seen

    # ── what can be asked for ──

    def label(self, seen: ImageRecord, label: int | None, off: Collection[int] = ()) -> int:
        """The class that is asked about, by default the predicted one."""
        if label is None:
            return seen.answer.label(off)
        if not 0 <= label < len(self.model.classes):
            raise NotFound(f"there is no class {label}; classes are 0 to {len(self.model.classes) - 1}")
        return label

    def prototypes(self, numbers: Collection[int]) -> tuple[int, ...]:
        """The numbers, each once and known."""
        for number in numbers:
            if not 0 <= number < len(self.model.prototypes):
                raise NotFound(f"there is no prototype {number}; the run has {len(self.model.prototypes)}")
        return tuple(dict.fromkeys(numbers))

    def numbers_of(self, label: int | None) -> Sequence[int]:
        """Of all prototypes, or of those of a class."""
        records = self.model.prototypes
        if label is None:
            return range(len(records))
        if label >= len(self.model.classes):
            raise NotFound(f"there is no class {label}; the run has {len(self.model.classes)}")
        name = self.model.classes[label]
        return [number for number, record in enumerate(records) if record.class_name == name]

    def source_picture(self, prototype: int) -> "Future[bytes]":
        """The source image of a prototype, PNG."""
        (number,) = self.prototypes([prototype])
        return self.reading.submit(lambda: png(source_image(self.model, number)))

    def source_place(self, prototype: int) -> "Future[bytes]":
        """The place of a prototype in its source, large, or its heatmap if one is kept; PNG."""
        (number,) = self.prototypes([prototype])
        place = self.model.prototypes[number].place

        def task() -> bytes:
            found = mapped_source(self.model, number, preset=self.settings.preset) if place is None else None
            return png(place_picture(source_image(self.model, number), place) if found is None else found)

        return self.reading.submit(task)

    def name_part(self, prototype: int, name: str) -> "Future[str]":
        """What a prototype's part is called from now on, kept in the run folder."""
        (number,) = self.prototypes([prototype])

        def task() -> str:
            name_parts(self.model, {number: name})
            return self.model.part_names[number].words

        return self.answering.submit(task)

    def place(self, seen: ImageRecord, prototype: int) -> RowPlace:
        """Where a prototype is seen in the image, once that is known."""
        (number,) = self.prototypes([prototype])
        place = seen.places.find(str(number))
        if place is None:
            raise NotYet(
                f"the place of prototype {number} is not known yet; ask for it, and wait for the job"
            )
        return place

    def pair(self, seen: ImageRecord, label: int, versus: int) -> tuple[int, int]:
        """Two classes that can be compared."""
        both = self.label(seen, label), self.label(seen, versus)
        if label == versus:
            raise UserError(f"{self.model.classes[label]} cannot be compared with itself; name another class")
        return both

    def class_map(self, seen: ImageRecord, label: int, method: str, versus: int | None = None) -> Map:
        """Where a class is seen in the image by a method, once that is known."""
        known = self.label(seen, label)
        self._check_method(method, versus)
        found = seen.maps.find(map_key(known, method, versus))
        if found is None:
            raise NotYet(f"the map of class {known} is not known yet; ask for it, and wait for the job")
        return found

    def sheet(self, seen: ImageRecord, label: int, top: int, off: Collection[int]) -> "Future[bytes]":
        """The explanation of a class as one picture, PNG, once the places of its prototypes are known."""
        known, without = self.label(seen, label), self.prototypes(off)
        return self.reading.submit(lambda: self._drawn(seen, known, top, without))

    def _drawn(self, seen: ImageRecord, label: int, top: int, off: Collection[int]) -> bytes:
        items = seen.weightiest(label, top, off)
        if not items:
            raise NotFound("there is no prototype to draw")
        places = {item.prototype: seen.places.find(str(item.prototype)) for item in items}
        if lacking := [str(number) for number, place in places.items() if place is None]:
            raise NotYet(
                f"the places of these prototypes are not known yet: {', '.join(lacking)}; "
                "ask for them, and wait for the job"
            )
        rows = [(item, place) for item in items if (place := places[item.prototype]) is not None]
        return seen.sheet(label, rows, off)

    def _check_method(self, method: str, versus: int | None) -> None:
        if method not in self.methods and (versus is None or method != CONTRAST):
            raise NotFound(f"there is no method '{method}' here; there are: {', '.join(self.methods)}")

    # ── slow work ──

    def explain_places(self, seen: ImageRecord, prototypes: Collection[int]) -> Job:
        """Where the image looks like these prototypes; places that are known already cost nothing."""
        known = self.prototypes(prototypes)
        self.model.check_sources()
        lacking = seen.lacking(known)
        return self._begin(lambda job: self.explaining.places(seen, lacking, job), self.decoding)

    def explain_class(self, seen: ImageRecord, label: int, method: str, versus: int | None = None) -> Job:
        """Where a class is seen in the image, by one of `methods`; or what is ahead of `versus` there."""
        self._check_method(method, versus)
        known = self.label(seen, label)
        if versus is not None:
            self.pair(seen, label, versus)
        return self._begin(
            lambda job: self.explaining.class_map(seen, known, method, job, versus), self.decoding
        )

    def clean(self, reasons: Mapping[int, str]) -> Job:
        """A run without these prototypes, in a folder of the server's own."""
        self.prototypes(list(reasons))

        def start(job: Job) -> None:
            self._submit(job, lambda job: self.saving.save(reasons, job), self.preparing)

        return self.saving.begin(reasons, start)

    def job(self, key: str) -> Job:
        saving = self.saving.job  # found for as long as it is the latest
        job = saving if saving is not None and saving.id == key else self.jobs.find(key)
        if job is None:
            raise NotFound("this job is not known, or no longer: only the latest are kept")
        return job

    def _begin(self, work: Any, worker: Worker) -> Job:
        job = Job()
        self._submit(job, work, worker)
        return job

    def _submit(self, job: Job, work: Any, worker: Worker) -> None:
        worker.submit(lambda: job.run(work, say=in_words))
        job.id = self.jobs.add(job)


def _name(model: TrainedModel) -> str:
    if isinstance(model, PlainModel):
        return model.classifier.name
    return "model" if model.folder is None else Path(model.folder).resolve().name


def in_words(error: Exception) -> str:
    """Errors that were written for people as they are, others by their kind only."""
    if isinstance(error, UserError | ComputationError | NotFound | NotYet | Busy):
        return str(error)
    logger.error("unexpected %s", type(error).__name__, exc_info=error)
    return f"this failed unexpectedly ({type(error).__name__}); the server's log says more"
