"""Progress on stderr: one bar for what is going on, one line for what is done."""

from collections.abc import Iterable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dprotonet.experiment.runs.trainer import Preparing
from dprotonet.launch import is_main
from dprotonet.percent import percent
from dprotonet.training.events import EpochDone, Event, PushDone, RoundDone, StepDone

_LABELS = {
    "features": "computing backbone features",
    "levels": "joining levels of the backbone",
    "scan": "reading images",
    "calibrating": "training without a part of the images, to calibrate",
}


def stderr_console() -> Console:
    """Speaks only in the main process of a distributed run."""
    return Console(stderr=True, quiet=not is_main(), highlight=False)


class Reporter:
    """Shows a stream of training events; lines stay, the bar moves."""

    def __init__(self, console: Console) -> None:
        self.console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task("", total=None, visible=False)
        self.current = ""

    def __enter__(self) -> "Reporter":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def advance(self, what: str, done: int, total: int, note: str = "") -> None:
        """Move the bar of `what`; a new name starts a new bar."""
        label = _LABELS.get(what, what)
        if label != self.current:
            self.current = label
            self.bar.reset(self.task, total=total, visible=True)
        self.bar.update(self.task, completed=done, total=total, description=f"{label} {note}")

    def watch(self, events: Iterable[Preparing | Event]) -> None:
        for event in events:
            self.show(event)

    def show(self, event: Preparing | Event) -> None:
        if isinstance(event, Preparing):
            if event.note:
                self.console.print(event.note, soft_wrap=True, markup=False)
            self.advance(event.what, event.done, event.total)
        elif isinstance(event, StepDone):
            note = f"loss {event.loss:7.3f}  accuracy {percent(event.accuracy):>7}"
            self.advance(f"{event.phase} epoch {event.epoch}", event.step, event.steps, note)
        elif not (isinstance(event, EpochDone) and event.phase == "last"):
            self.console.print(describe(event), soft_wrap=True)


def describe(event: EpochDone | PushDone | RoundDone) -> str:
    """An event as a line."""
    if isinstance(event, EpochDone):
        return (
            f"{event.phase:>5} epoch {event.epoch:3d}  loss {event.terms['loss']:8.3f}  "
            f"train {percent(event.train_accuracy):>7}  val {percent(event.val_accuracy):>7}  "
            f"{event.seconds:5.1f} s  "
            f"{'unknown' if event.steps is None else event.steps} steps"
        )
    if isinstance(event, PushDone):
        collapsed = int(event.projection.collapsed.sum())
        note = f"  [yellow]{collapsed} prototypes fell together[/yellow]" if collapsed else ""
        views = event.projection.views
        return (
            f"[bold] push[/bold] at {event.epoch:5d}  "
            f"val {percent(event.val_before):>7} → {percent(event.val_after):>7}  "
            f"({views} view{'s' * (views != 1)} a prototype)  {event.seconds:5.1f} s{note}"
        )
    fate = "[green]kept as the best[/green]" if event.kept else "not better"
    end = "; patience is over" if event.stop else ""
    return f" judged at {event.epoch:3d}     val {percent(event.val_accuracy):>7}  {fate}{end}"
