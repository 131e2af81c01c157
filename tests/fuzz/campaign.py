"""Many inputs by worker processes: counted by kind, gone on with after a stop, crashes kept as defects.

Every input has a number, so the state of a campaign is how far each target is, and what was found so far. A
worker that dies or hangs takes its batch with it: the batch is done again without the input it died of.
"""

import faulthandler
import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.target import Opener
from tests.fuzz.worker import Batch, Found, Limits, Worker, silence, told

_LOOK = 1.0  # seconds between looks at a worker that does not answer
_FEW = 50  # inputs of a batch at most where each takes long
_BEGINNING = 10  # times as long as an input may take to begin: something may have to be trained
_LIMITS = Limits()
_CONTEXT = multiprocessing.get_context("fork")


@dataclass
class Tally:
    """How far a target is, and what was found."""

    inputs: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    skipped: list[int] = field(default_factory=list)  # that a worker died of
    megabytes: float = 0.0
    seconds: float = 0.0

    def add(self, batch: Batch, inputs: int) -> None:
        self.inputs += inputs
        for kind, counts in batch.counts.items():
            self.counts.setdefault(kind, Counter()).update(counts)
        for what, found in batch.found.items():
            known = self.found.setdefault(what, Found(what))
            known.count += found.count
            known.numbers = [*known.numbers, *found.numbers][:3]
        self.megabytes, self.seconds = max(self.megabytes, batch.megabytes), max(self.seconds, batch.seconds)

    def to_json(self) -> dict[str, Any]:
        found = {what: vars(told) for what, told in self.found.items()}
        return {**vars(self), "found": found}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Tally":
        found = {what: Found(**told) for what, told in content["found"].items()}
        counts = {kind: Counter(told) for kind, told in content["counts"].items()}
        return cls(**{**content, "found": found, "counts": counts})


class Campaign:
    """Targets in turn, each by a worker process of its own."""

    def __init__(
        self,
        openers: Mapping[str, Opener],
        place: Path,
        *,
        seed: int,
        limits: Limits = _LIMITS,
        patience: float = 120.0,
        state: Path | None = None,
    ) -> None:
        self.openers, self.place, self.seed, self.limits = openers, place, seed, limits
        self.patience, self.state = patience, state
        self.tallies = {name: Tally() for name in openers}
        if state is not None and state.is_file():
            kept = json.loads(state.read_text(encoding="utf-8"))
            if kept["seed"] != seed:
                raise ValueError(f"{state} was begun with seed {kept['seed']}")
            self.tallies |= {name: Tally.from_json(told) for name, told in kept["targets"].items()}

    def run(
        self,
        wanted: Mapping[str, int],
        *,
        until: float = float("inf"),
        slice_seconds: float = 200.0,
        on_batch: Callable[[str, Tally], None] = lambda name, tally: None,
    ) -> None:
        """As many inputs of each target, a slice of time for each in turn."""
        while True:
            open_ones = [name for name in self.openers if self.tallies[name].inputs < wanted[name]]
            if not open_ones or time.monotonic() >= until:
                return
            for name in open_ones:
                end = min(until, time.monotonic() + slice_seconds)
                self._slice(name, wanted[name], end, on_batch)

    def _slice(self, name: str, most: int, end: float, on_batch: Callable[[str, Tally], None]) -> None:
        tally, size = self.tallies[name], 10
        hand = _Hand(name, self.openers[name], self.place / name, self.limits, self.seed)
        try:
            while tally.inputs < most and (time.monotonic() < end):
                numbers = range(tally.inputs, min(most, tally.inputs + size))
                begun = time.monotonic()
                answer = hand.ask(numbers, tally.skipped, self.patience)
                if isinstance(answer, Batch):
                    tally.add(answer, len(numbers))
                    size = 2 * size if time.monotonic() - begun < 1 else max(_FEW, size // 2)
                else:
                    tally.skipped.append(answer.number)
                    found = tally.found.setdefault(answer.what, Found(answer.what))
                    found.count, found.numbers = found.count + 1, [*found.numbers, answer.number][:3]
                    tally.counts.setdefault("worker died", Counter())["defects"] += 1
                    hand.end()
                    hand = _Hand(name, self.openers[name], self.place / name, self.limits, self.seed)
                self._keep()
                on_batch(name, tally)
        finally:
            hand.end()

    def _keep(self) -> None:
        if self.state is not None:
            content = {
                "seed": self.seed,
                "targets": {n: tally.to_json() for n, tally in self.tallies.items()},
            }
            fresh = self.state.with_name(self.state.name + ".new")
            fresh.write_text(json.dumps(content, indent=1), encoding="utf-8")
            os.replace(fresh, self.state)


@dataclass(frozen=True)
class Death:
    """The input that a worker died of, or was ended at."""

    number: int
    what: str


class _Hand:
    """A worker process, and the pipe to it."""

    def __init__(self, *given: Any) -> None:
        self.now = _CONTEXT.RawValue("q", -1)
        self.ours, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_work, args=(theirs, self.now, *given), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, numbers: range, skipped: list[int], patience: float) -> Batch | Death:
        """The worker's answer; what it was at if it dies, or is at one input for longer than `patience`."""
        self.ours.send([number for number in numbers if number not in skipped])
        last, since = -2, time.monotonic()
        while not self.ours.poll(_LOOK):
            if self.now.value != last:
                last, since = self.now.value, time.monotonic()
            patient = patience if self.now.value >= 0 else _BEGINNING * patience
            if time.monotonic() - since > patient:
                if self.now.value < 0:
                    raise RuntimeError(f"a worker could not begin within {patient:g} s")
                return Death(last, f"hung for more than {patience:g} s")
            if not self.process.is_alive():
                break
        try:
            answer: Batch | str = self.ours.recv()
            if isinstance(answer, str):
                raise RuntimeError(answer)
            return answer
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            if self.now.value < 0:
                raise RuntimeError(f"a worker could not begin ({how})") from None
            return Death(self.now.value, f"the process died of {how}")

    def end(self) -> None:
        self.ours.close()
        self.process.kill()
        self.process.join()


def _work(
    pipe: Connection, now: Any, name: str, opener: Opener, place: Path, limits: Limits, seed: int
) -> None:
    """In the worker: batch after batch until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()  # a crash is told by the process that waits
    if not os.environ.get("FUZZ_SHOW"):
        silence()
    place.mkdir(parents=True, exist_ok=True)
    try:
        worker = Worker(name, opener, place, limits, seed)
    except BaseException as error:  # told by the process that waits
        pipe.send(f"{name} could not begin: {told(error)}")
        return

    def counted(numbers: list[int]) -> Any:
        for number in numbers:
            now.value = number
            yield number

    while True:
        try:
            numbers = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(worker.batch(counted(numbers)))
        except BaseException as error:  # of this harness: an input could not be drawn
            pipe.send(f"{name} {now.value}: {told(error)}")
            return
