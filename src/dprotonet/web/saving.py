"""Saving a cleaned run: work that goes on when its page is closed, and can be asked for by the next one.

One run is saved at a time, into a folder of the server's own beside the run (RUN-cleaned/001, 002 …), under a
number that the server chooses. A folder is there as a whole or not at all, whenever the server is stopped.
"""

import threading
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.cleaning import Cleaning, clean
from dprotonet.experiment.prototypes.what_if import WhatIf, check_classes_left
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.files import remove_unfinished
from dprotonet.percent import percent
from dprotonet.web.job import Job
from dprotonet.web.samples import Samples

_MOST_RUNS = 100  # cleaned runs in the server's folder: more would be a mistake, and fill the disk


class AlreadySaving(UserError):
    """Another cleaned run is on its way."""


class Saving:
    """Cleaned runs of one model; `job` is the latest, which nobody has to watch."""

    def __init__(self, model: TrainedModel, samples: Samples) -> None:
        self.model = model
        self.job: Job | None = None
        self.reasons: Mapping[int, str] = {}
        self._samples = samples
        self._known: dict[str, WhatIf] = {}  # of the splits that cleaning may see
        self._lock = threading.Lock()

    def begin(self, reasons: Mapping[int, str], start: Callable[[Job], None]) -> Job:
        """The job that saves a run without these prototypes; the one that is at it already, if there is."""
        if not reasons:
            raise UserError("no prototype is switched off, so there is nothing to clean")
        check_classes_left(self.model, list(reasons))
        with self._lock:
            if self.job is not None and not self.job.ended:
                if dict(reasons) == dict(self.reasons):
                    return self.job
                raise AlreadySaving("another cleaned run is being saved; wait for it, or cancel it")
            job = Job(patience=inf)
            start(job)
            self.job, self.reasons = job, dict(reasons)
            return job

    def save(self, reasons: Mapping[int, str], job: Job) -> dict[str, str]:
        """Clean and write; says where the run is, in words too."""
        self._go_over_data(job)
        job.begin_step("the last layer learns again")

        def tell(done: int, total: int) -> None:
            job.check()
            job.progress(done, total)

        made = clean(self.model, reasons, self._known, on_epoch=tell)
        job.begin_step("the run is being written")
        job.check()
        folder = self._written(made)
        return {"folder": folder.name, "path": str(folder), "words": _words(folder, made)}

    def _go_over_data(self, job: Job) -> None:
        """Once; the next cleaning takes a moment only."""
        job.begin_step("going over the training and validation images once")
        splits = self._samples.waited()
        images = {"train": splits.train, "val": splits.val}
        total, before = sum(map(len, images.values())), 0

        def tell(done: int, _of: int) -> None:
            job.check()
            job.progress(before + done, total)

        for name, split in images.items():
            if name not in self._known:
                self._known[name] = WhatIf(self.model, split, on_progress=tell)
            before += len(split)

    def _written(self, made: Cleaning) -> Path:
        """The new folder in `RUN-cleaned`, beside the run."""
        if self.model.folder is None:
            raise UserError("this model was not loaded from a run folder, so there is no place beside it")
        run = self.model.folder.resolve()
        home = run.with_name(f"{run.name}-cleaned")
        try:
            with claimed(home):  # another server may serve the same run
                remove_unfinished(home)
                folder = _free_folder(home)
                made.save(folder)
        except OSError as error:
            raise UserError(f"{home} cannot be written to ({error.strerror or error})") from None
        return folder


def _free_folder(home: Path) -> Path:
    for number in range(1, _MOST_RUNS + 1):
        if not (home / f"{number:03d}").exists():
            return home / f"{number:03d}"
    raise UserError(f"there are {_MOST_RUNS} cleaned runs in {home} already; remove some")


def _words(folder: Path, made: Cleaning) -> str:
    val = made.accuracy["val"]
    return (
        f"Saved as {folder.parent.name}/{folder.name}: {len(made.kept)} prototypes left, "
        f"validation accuracy {percent(val.before)} → {percent(val.after)}"
    )
