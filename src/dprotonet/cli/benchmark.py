"""`dprotonet benchmark`: a table of many runs, from one TOML file."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed
from dprotonet.errors import ComputationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dprotonet.cli.progress import Reporter
    from dprotonet.experiment.benchmark.run import Benchmark, Failure, Progress


@dataclass(frozen=True)
class BenchmarkArguments:
    """Train and evaluate every row and column of a plan, and write its table. Repeat it to continue."""

    plan: Annotated[Path, tyro.conf.Positional]
    """A TOML file with [[row]] and [[column]]; see configs/quick."""
    out: Path
    """Folder for runs, tables and pictures."""
    cache: Path | None = None
    """Cache folder for features of frozen mode (default: the user's cache folder, or $DPROTONET_CACHE)."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> None:
    arguments = parsed(BenchmarkArguments, words, command="benchmark")
    check_out(arguments.out)
    from dprotonet.experiment.benchmark.files import save_benchmark
    from dprotonet.experiment.benchmark.plan import Plan, check_places
    from dprotonet.experiment.benchmark.run import Benchmark
    from dprotonet.experiment.build.training import default_cache
    from dprotonet.experiment.settings.config_check import check_config

    plan = Plan.read(arguments.plan)
    for cell in plan.cells:
        check_config(cell.config)
    check_places(plan, arguments.plan.name)
    benchmark = Benchmark(plan, arguments.out, cache=arguments.cache or default_cache())
    benchmark.check()  # a folder of another plan is better found before the work
    failures = _worked(benchmark)
    content = {**save_benchmark(benchmark), "failures": [failure._asdict() for failure in failures]}
    if arguments.json:
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(content, arguments.out)
    if failures:
        raise ComputationError(
            f"{content['finished']} of {content['runs']} runs are finished, {len(failures)} things failed; "
            f"the first: {failures[0].run}: {failures[0].reason}"
        )


def _show(content: dict[str, Any], out: Path) -> None:
    for name in ("table.md", "localisation.md"):
        if (out / name).is_file():
            print((out / name).read_text(encoding="utf-8"))
    for kind, path in content["files"].items():
        print(f"{kind}: {path}")


def _worked(benchmark: "Benchmark") -> "list[Failure]":
    """Train what is missing, then measure heatmaps if the plan wants it: a bar for each."""
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.benchmark.localisation import Localisation

    with Reporter(stderr_console()) as reporter:
        watch = Watch(reporter)
        watch.all("runs", benchmark.run())
        if benchmark.plan.localisation is not None:
            watch.all("heatmaps", Localisation(benchmark, benchmark.plan.localisation).run())
        watch.all("pictures", benchmark.draw())
    return watch.failures


class Watch:
    """Shows steps and remembers what failed, each told once."""

    def __init__(self, reporter: "Reporter") -> None:
        self.reporter = reporter
        self.failures: list[Failure] = []

    def all(self, what: str, steps: "Iterator[Progress]") -> None:
        for progress in steps:
            self.see(what, progress)

    def see(self, what: str, progress: "Progress") -> None:
        from dprotonet.training.events import StepDone

        event, failure = progress.event, progress.failure
        note = f"{event.phase} epoch {event.epoch}" if isinstance(event, StepDone) else ""
        self.reporter.advance(what, progress.done, progress.total, f"{progress.run} {note}")
        if failure is None or failure in self.failures:
            return
        known = any(item.reason == failure.reason for item in self.failures)
        self.failures.append(failure)
        told = "for the same reason" if known else failure.reason
        self.reporter.console.print(f"failed: {failure.run}: {told}", markup=False, soft_wrap=True)
