"""What the benchmarks share: alternating measurement, peak memory, one JSON object on stdout."""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable


def say(text: str) -> None:
    """Progress, on stderr, so that stdout stays one JSON object."""
    print(text, file=sys.stderr, flush=True)


def alternating_seconds(
    steps: dict[str, Callable[[], object]],
    *,
    repeats: int,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each step, taken in turns, so that a busy machine slows all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(warm_up + repeats):
        for name, step in steps.items():
            start = clock()
            step()
            elapsed = clock() - start
            say(f"{name}: {elapsed:.2f} s{' (warm-up)' if turn < warm_up else ''}")
            if turn >= warm_up:
                seconds[name].append(elapsed)
    return seconds


def middle(seconds: list[float]) -> float:
    return statistics.median(seconds)


def peak_mb() -> float:
    """High-water mark of this process's resident memory since it started, in MB (Linux counts in kB)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def tell(result: dict[str, object]) -> None:
    print(json.dumps(result, indent=2))
