"""The prototypes under review: facts of each, what if some were off, and a cleaned run.

What needs a pass over a split is made when it is first asked for, by a thread of its own. A cleaned run goes
into a folder of the server's own beside the run, under a name that the server chooses.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from dprotonet.errors import UserError
from dprotonet.experiment.clean import Cleaning, clean_run
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototype_facts import PrototypeFacts, stored_facts
from dprotonet.experiment.what_if import WhatIf, check_classes_left
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

    def check(self, reasons: Mapping[int, str]) -> None:
        """What can be said before any work is done."""
        if not reasons:
            raise UserError("no prototype is switched off, so there is nothing to clean")
        check_classes_left(self.model, list(reasons))

    def clean(self, reasons: Mapping[int, str], job: Job) -> dict[str, str]:
        """A run without these prototypes, its last layer trained again; where it is, in words."""

        def tell(done: int, total: int) -> None:
            job.check()
            job.progress(done, total)

        folder = self._free_folder()
        made = clean_run(self.model, reasons, self._samples.waited(), folder, on_progress=tell)
        return {"folder": folder.name, "words": _words(folder, made)}

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
    return (
        f"Saved as {folder.parent.name}/{folder.name}: {made.left} prototypes left, "
        f"validation accuracy {made.before:.1%} → {made.after:.1%}"
    )
