"""One attack: work is killed, perhaps several times, gone on with, and compared with undisturbed work."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.torture.kills import changes_of, killed_after, killed_at_change
from tests.torture.subjects import Subject, cleared, leftovers


@dataclass
class Outcome:
    """What became of the attacks on a subject."""

    changes: int = 0  # of files, in an undisturbed run
    at_a_change: int = 0
    at_a_moment: int = 0
    too_late: int = 0  # the work had come to its end
    failures: list[str] = field(default_factory=list)


@dataclass
class Attack:
    """A subject, the folder it works in, and what it comes to when nobody disturbs it."""

    subject: Subject
    place: Path
    expected: Mapping[str, Any] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    seconds: float = 0.0

    def prepare(self) -> None:
        """The undisturbed run."""
        start = perf_counter()
        self.outcome.changes = changes_of(self.subject.work, cleared(self.place))
        self.seconds = perf_counter() - start
        self.expected = self.subject.result(self.place)
        assert leftovers(self.place) == []

    def at_changes(self, *numbers: int) -> None:
        """Killed before one change of a file after the other, each in a process that goes on."""
        cleared(self.place)
        kills = [killed_at_change(self.subject.work, self.place, number) for number in numbers]
        self.outcome.at_a_change += sum(kills)
        self.outcome.too_late += kills.count(False)
        self._compare(f"before change {' and '.join(map(str, numbers))} of {self.outcome.changes}")

    def at_moment(self, seconds: float) -> None:
        """Killed wherever it is."""
        killed = killed_after(self.subject.work, cleared(self.place), seconds)
        self.outcome.at_a_moment += killed
        self.outcome.too_late += not killed
        self._compare(f"after {seconds:.3f} s of {self.seconds:.3f} s")

    def _compare(self, when: str) -> None:
        """Go on to the end, and look for anything that is not as it would have been."""
        try:
            self.subject.work(self.place)
            found = self.subject.result(self.place)
        except Exception as error:  # whatever a user would meet
            self.outcome.failures.append(f"{when}: {type(error).__name__}: {error}")
            return
        others = [name for name in {**self.expected, **found} if found.get(name) != self.expected.get(name)]
        if others or leftovers(self.place):
            self.outcome.failures.append(f"{when}: other {', '.join(others)}; left {leftovers(self.place)}")


def moment(generator: random.Random, attack: Attack) -> float:
    """Some time within the undisturbed run."""
    return generator.uniform(0, attack.seconds)
