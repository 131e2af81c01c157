"""A process that takes inputs under limits of memory and time, and survives none of its decoders' crashes.

The limit of address space makes an allocation that is too large fail; the peak of resident memory is read
after each input; a timer of CPU time interrupts what takes too long. What no timer can interrupt is ended by
the process that waits for the results (`campaign`).
"""

import os
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.fuzz.target import REFUSALS, Case, Opener, drawn

_MEGABYTE = 10**6


@dataclass(frozen=True)
class Limits:
    """Of one input: CPU seconds, and megabytes above the idle process."""

    seconds: float = 10.0
    megabytes: int = 600


@dataclass
class Found:
    """A defect: what was raised and where, by which inputs."""

    what: str
    numbers: list[int] = field(default_factory=list)
    count: int = 0


@dataclass
class Batch:
    """What became of a run of inputs: by kind how many were accepted, refused and defects."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    megabytes: float = 0.0  # of the input that took most
    seconds: float = 0.0  # CPU time, likewise

    def add(self, kind: str, outcome: str) -> None:
        self.counts.setdefault(kind, Counter())[outcome] += 1

    def defect(self, what: str, number: int) -> None:
        found = self.found.setdefault(what, Found(what))
        found.numbers, found.count = [*found.numbers, number][:3], found.count + 1


class TooSlow(BaseException):
    """Not an Exception: nothing may take it for a damaged file."""


class Worker:
    """A target in this process, with its limits."""

    def __init__(self, name: str, opener: Opener, place: Path, limits: Limits, seed: int) -> None:
        self.name, self.place, self.limits, self.seed = name, place, limits, seed
        self.target = opener(place)
        for number in range(3):  # libraries load what they load on first use
            self._taken(Batch(), drawn(self.target, name, seed, -1 - number), -1)
        _limit_address_space(limits.megabytes)

    def batch(self, numbers: Iterator[int]) -> Batch:
        """Inputs by number; what the batch left behind is a defect of its last input."""
        result, before, last = Batch(), _open_things(), 0
        for last in numbers:
            self._taken(result, drawn(self.target, self.name, self.seed, last), last)
        for left in (*self.target.left(), *_more(before, _open_things())):
            result.defect(f"left behind: {left}", last)
        return result

    def _taken(self, result: Batch, case: Case, number: int) -> None:
        idle, begun = _fresh_peak(), time.process_time()
        try:
            with _timed(self.limits.seconds):
                self.target.feed(case)
            outcome = "accepted"
        except REFUSALS:
            outcome = "refused"
        except TooSlow as error:
            outcome = "defects"
            result.defect(f"{case.kind}: more than {self.limits.seconds:g} s, in {_where(error)}", number)
        except BaseException as error:
            outcome = "defects"
            result.defect(f"{case.kind}: {type(error).__name__} in {_where(error)}: {_plain(error)}", number)
        result.add(case.kind, outcome)
        taken, peak = time.process_time() - begun, _peak() - idle
        result.seconds, result.megabytes = max(result.seconds, taken), max(result.megabytes, peak)
        if peak > self.limits.megabytes:
            result.defect(f"{case.kind}: more than {self.limits.megabytes} MB", number)


@contextmanager
def _timed(seconds: float) -> Iterator[None]:
    """Raise `TooSlow` in the main thread after so much CPU time of the process."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _limit_address_space(megabytes: int) -> None:
    """Of what the process has now, and so much more; some room for stacks of threads."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + (megabytes + 500) * _MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def _fresh_peak() -> float:
    """Forget the peak of resident memory, and say what is resident now, in megabytes."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return _peak()


def _peak() -> float:
    with open("/proc/self/status", "rb") as file:
        found = re.search(rb"VmHWM:\s+(\d+)", file.read())
    return int(found[1]) * 1024 / _MEGABYTE if found else 0.0


def _open_things() -> Counter[str]:
    """The files that are open."""
    files: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            files[f"open {os.readlink(f'/proc/self/fd/{name}')}"] += 1
        except OSError:  # that of the listing itself
            continue
    return files


def _more(before: Counter[str], after: Counter[str]) -> list[str]:
    """What there is more of, but for pipes of this harness and what libraries keep open, such as fonts."""
    kept = re.compile(r"open (pipe|socket|anon_inode|.*/site-packages/)")
    return [name for name in after - before if not kept.match(name)]


def _where(error: BaseException) -> str:
    """The innermost line of ours, and the innermost of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/dprotonet/" in frame.filename and "/tests/" not in frame.filename]
    shown = [ours[-1]] if ours else []
    shown += [frames[-1]] if frames and (not ours or frames[-1] is not ours[-1]) else []
    return " → ".join(f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in shown)


def _plain(error: BaseException) -> str:
    """The message without the numbers of this input, so that the same defect is counted once."""
    return re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "#", str(error).splitlines()[0] if str(error) else "")[:120]


def told(error: BaseException) -> str:
    """For a defect that is looked at again."""
    return "".join(traceback.format_exception(error))


def silence() -> None:
    """Nothing that inputs print may come between our lines."""
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
