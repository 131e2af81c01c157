"""What a process holds, seen every few seconds, and whether it grows: a line through what was seen."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import IO

QUANTITIES = {"resident": "MB", "own": "MB", "handles": "", "threads": ""}
_PARTS = {"VmRSS": "resident", "RssAnon": "own"}  # all that is resident; without files mapped into memory


def seen(process: int) -> dict[str, float]:
    """Memory in MB, open file handles, threads and seconds of computing of a process."""
    place = Path(f"/proc/{process}")
    lines = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    sizes = {name: int(lines[key].split()[0]) * 1024 / 1e6 for key, name in _PARTS.items()}
    counts = {"handles": len(os.listdir(place / "fd")), "threads": int(lines["Threads"])}
    return {**sizes, **counts, "cpu": computed(process)}


def computed(process: int) -> float:
    """Seconds that a process computed."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def asleep(process: int) -> bool:
    """Whether no thread computes, or would if others let it."""
    states = [
        task.read_text().rpartition(")")[2].split()[0]
        for task in Path(f"/proc/{process}/task").glob("*/stat")
    ]
    return all(state == "S" for state in states)


@dataclass
class Watch:
    """Looks at a process every `every` seconds; each look is a line of a file, so that none is lost."""

    process: int
    file: IO[str]
    every: float
    looks: list[dict[str, float]] = field(default_factory=list)
    _begun: float = field(default_factory=time.monotonic)

    def look_if_due(self, **more: float) -> None:
        """`more` is written beside what is seen."""
        if not self.looks or self._now() - self.looks[-1]["seconds"] >= self.every:
            self.look(**more)

    def look(self, **more: float) -> None:
        try:
            look = {"seconds": round(self._now(), 1), **seen(self.process), **more}
        except (OSError, KeyError):  # it has just ended
            return
        self.looks.append(look)
        self.file.write(json.dumps(look) + "\n")
        self.file.flush()

    def _now(self) -> float:
        return time.monotonic() - self._begun


def line(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Slope by least squares, and its standard error."""
    middle, mean = fmean(times), fmean(values)
    spread = sum((time - middle) ** 2 for time in times)
    slope = sum((t - middle) * (v - mean) for t, v in zip(times, values, strict=True)) / spread
    rest = sum((v - mean - slope * (t - middle)) ** 2 for t, v in zip(times, values, strict=True))
    return slope, math.sqrt(rest / (len(times) - 2) / spread)


def slopes(looks: Sequence[Mapping[str, float]], warm: float, per: str = "hours") -> dict[str, dict]:
    """Of each quantity after `warm` (in `per`): slope, its standard error, first and last tenth, largest."""
    later = [look for look in looks if look[per] >= warm]
    if len(later) < 3:
        raise SystemExit(f"{len(later)} looks after the warm-up are too few for a slope; run it for longer")
    tenth = max(len(later) // 10, 1)
    found = {}
    for name in QUANTITIES:
        values = [look[name] for look in later]
        slope, error = line([look[per] for look in later], values)
        found[name] = {
            "slope": round(slope, 3),
            "standard error": round(error, 3),
            "first tenth": round(fmean(values[:tenth]), 1),
            "last tenth": round(fmean(values[-tenth:]), 1),
            "largest": round(max(values), 1),
        }
    return found
