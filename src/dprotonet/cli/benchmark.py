"""`dprotonet benchmark`: a table of many runs, from one TOML file."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed
from dprotonet.errors import ComputationError


@dataclass(frozen=True)
class BenchmarkArguments:
    """Train and evaluate every row and column of a plan, and write its table. Goes on where it stopped."""

    plan: Annotated[Path, tyro.conf.Positional]
    """A TOML file with [[row]] and [[column]]; see configs/quick."""
    out: Path
    """Folder for runs, tables and pictures."""
    cache: Path | None = None
    """Where frozen mode keeps features (default: the user's cache folder, or $DPROTONET_CACHE)."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> None:
    arguments = parsed(BenchmarkArguments, words, command="benchmark")
    check_out(arguments.out)
    from dprotonet.experiment.benchmark.files import save_benchmark
    from dprotonet.experiment.benchmark.plan import Plan
    from dprotonet.experiment.benchmark.run import Benchmark
    from dprotonet.experiment.build import check_config, default_cache

    plan = Plan.read(arguments.plan)
    for cell in plan.cells:
        check_config(cell.config)
    benchmark = Benchmark(plan, arguments.out, cache=arguments.cache or default_cache())
    benchmark.results()  # a folder of another plan is better found before the work
    failures = _run(benchmark)
    content = {**save_benchmark(benchmark), "failures": [failure._asdict() for failure in failures]}
    if arguments.json:
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        print((arguments.out / "table.md").read_text(encoding="utf-8"))
        for kind, path in content["files"].items():
            print(f"{kind}: {path}")
    if failures:
        raise ComputationError(
            f"{len(failures)} of {len(plan.cells)} runs failed; the first: {failures[0].run}"
        )


def _run(benchmark: Any) -> list[Any]:
    """One bar over all runs; a line for every one that is finished or failed."""
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.training.events import StepDone

    console, failures = stderr_console(), []
    with Reporter(console) as reporter:
        for progress in benchmark.run():
            event = progress.event
            note = f"{event.phase} epoch {event.epoch}" if isinstance(event, StepDone) else ""
            reporter.advance("runs", progress.done, progress.total, f"{progress.run} {note}")
            if progress.failure is not None:
                failures.append(progress.failure)
                console.print(f"failed: {progress.failure.run}: {progress.failure.reason}", markup=False)
    return failures
