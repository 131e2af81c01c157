"""Training as one bar, for notebooks and scripts; the command line has its own (cli/progress.py)."""

import sys
from types import TracebackType
from typing import Any

from dprotonet.experiment.runs.choose_mode import Trial
from dprotonet.experiment.runs.trainer import Preparing
from dprotonet.launch import is_main
from dprotonet.percent import percent
from dprotonet.training.events import EpochDone, Event, StepDone

_LABELS = {
    "features": "computing backbone features",
    "levels": "joining levels of the backbone",
    "scan": "reading images",
}


class ProgressBar:
    """Shows what training is doing, on stderr or as a widget; `shown` None: where somebody can see it."""

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = seen_by_somebody() if shown is None else shown
        self._bar: Any = None
        self._what = ""  # the bar is about
        self._validated = ""  # the latest validation accuracy

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def scan(self, done: int, total: int) -> None:
        """Images are being read."""
        self._advance(_LABELS["scan"], done, total)

    def show(self, event: Preparing | Event | Trial) -> None:
        """Move the bar by an event of training or of a trial."""
        before = ""
        if isinstance(event, Trial):
            before, inner = f"trial of mode {event.mode}, fold {event.step.fold}: ", event.step.event
        else:
            inner = event
        if isinstance(inner, Preparing):
            self._advance(before + _LABELS.get(inner.what, inner.what), inner.done, inner.total)
        elif isinstance(inner, StepDone):
            note = f"loss {inner.loss:.3f}, accuracy {percent(inner.accuracy)}{self._validated}"
            self._advance(f"{before}{inner.phase} epoch {inner.epoch}", inner.step, inner.steps, note)
        elif isinstance(inner, EpochDone):
            self._validated = f", validation {percent(inner.val_accuracy)}"

    def _advance(self, what: str, done: int, total: int, note: str = "") -> None:
        if not self.shown:
            return
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, leave=False)
        self._bar.set_postfix_str(note, refresh=False)
        if what != self._what:
            self._what = what
            self._bar.set_description(what, refresh=False)
            self._bar.reset(total=total)  # which draws
        self._bar.update(done - self._bar.n)


def seen_by_somebody() -> bool:
    """Whether stderr is a terminal, or this is a notebook; of several processes, the main one."""
    if not is_main():
        return False
    return in_notebook() or sys.stderr.isatty()


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this; IPython is looked at if it is loaded, never imported."""
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
