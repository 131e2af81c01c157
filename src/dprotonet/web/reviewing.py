"""The prototypes under review: facts of each, what if some were off, and a cleaned run.

What needs a pass over a split is made when it is first asked for, by a thread of its own. A cleaned run goes
into a folder of the server's own beside the run, under a name that the server chooses.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from dprotonet.errors import UserError
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.cleaning import Cleaning, clean
from dprotonet.experiment.prototypes.facts import PrototypeFacts, stored_facts
from dprotonet.experiment.prototypes.what_if import WhatIf, check_classes_left
from dprotonet.percent import percent
from dprotonet.web.job import Job
from dprotonet.web.prepared import Prepared
from dprotonet.web.samples import Samples
from dprotonet.web.worker import Worker

_MOST_RUNS = 100  # cleaned runs in the server's folder: more would be a mistake, and fill the disk


class Reviewing:
    """Facts and what-ifs of one model."""

    def __init__(
        self, model: Model, samples: Samples, worker: Worker, *, say: Callable[[Exception], str]
    ) -> None:
        self.model = model
        self.facts: Prepared[tuple[PrototypeFacts, ...]] = Prepared(
            worker, lambda tell: stored_facts(model, on_progress=tell), say=say
        )
        self.test: Prepared[WhatIf] = Prepared(
            worker, lambda tell: WhatIf(model, samples.waited().test, on_progress=tell), say=say
        )
        self._samples = samples
        self._known: dict[str, WhatIf] = {}  # of the splits that cleaning may see

    def check(self, reasons: Mapping[int, str]) -> None:
        """What can be said before any work is done."""
        if not reasons:
            raise UserError("no prototype is switched off, so there is nothing to clean")
        check_classes_left(self.model, list(reasons))

    def clean(self, reasons: Mapping[int, str], job: Job) -> dict[str, str]:
        """A run without these prototypes, its last layer trained again; where it is, in words."""
        self._go_over_data(job)
        job.check()
        made = clean(self.model, reasons, self._known)
        folder = self._free_folder()
        made.save(folder)
        return {"folder": folder.name, "words": _words(folder, made)}

    def _go_over_data(self, job: Job) -> None:
        """Once; the next cleaning takes a moment only."""
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

    def _free_folder(self) -> Path:
        """A new folder in `RUN-cleaned`, beside the run."""
        if self.model.folder is None:
            raise UserError("this model was not loaded from a run folder, so there is no place beside it")
        run = self.model.folder.resolve()
        for number in range(1, _MOST_RUNS + 1):
            folder = run.with_name(f"{run.name}-cleaned") / f"{number:03d}"
            if not folder.exists():
                return folder
        raise UserError(f"there are {_MOST_RUNS} cleaned runs already; remove some")


def _words(folder: Path, made: Cleaning) -> str:
    val = made.accuracy["val"]
    return (
        f"Saved as {folder.parent.name}/{folder.name}: {len(made.kept)} prototypes left, "
        f"validation accuracy {percent(val.before)} → {percent(val.after)}"
    )
