"""Running what tables and figures need, plan by plan, and gathering what they show.

    OUT/runs/NETWORK-DIGEST/…            run folders; equal configs of several plans are trained once
    OUT/PLAN/…                           tables and pictures of a plan, as of `dprotonet benchmark`
    OUT/reproduction.json                everything that the pages show

What is finished is kept, what was stopped goes on. Runs whose data is not there are left out and counted.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from dprotonet.config import read_toml
from dprotonet.errors import UserError
from dprotonet.experiment.benchmark.files import save_benchmark
from dprotonet.experiment.benchmark.localisation import Localisation
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.benchmark.run import Benchmark, BenchmarkStep, Failure, config_digest
from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.reproduce.compared import ComparedTable, Deviations, compared
from dprotonet.experiment.reproduce.estimate import Estimate, Images
from dprotonet.experiment.reproduce.items import SOURCES, Item, PlanPart
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.files import read_json

BELOW = "data/"  # how the paths of data begin in a plan: below --data-root


class Missing(NamedTuple):
    """Data that a plan wants and that is not there."""

    data: str
    name: str
    folder: str
    address: str


class Planned(NamedTuple):
    """What a plan would cost: runs finished, of all that can be trained, and seconds for the rest.

    `waiting` runs lack their data, `later` are the seconds of these and of their maps, and `problems` is data
    that cannot be read.
    """

    plan: str
    items: tuple[str, ...]
    finished: int
    runs: int
    missing: tuple[Missing, ...]
    seconds: float
    waiting: int
    later: float
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """A table or figure of the paper with what was found for it."""

    name: str
    title: str
    tables: tuple[ComparedTable, ...]
    pictures: Mapping[str, Path]
    lacking: tuple[str, ...]  # why something is not there


@dataclass(frozen=True)
class Reproduction:
    """Some tables and figures, their plans, and the folder of all results."""

    items: Mapping[str, Item]
    out: Path
    root: Path = Path("data")
    quick: bool = False
    plans: Path | None = None  # a folder of plans in place of ours
    cache: Path = field(default_factory=default_cache)
    splits: RememberedSplits = field(default_factory=RememberedSplits)

    def parts(self, item: Item) -> tuple[PlanPart, ...]:
        return item.quick if self.quick else item.parts

    @cached_property
    def benchmarks(self) -> dict[str, Benchmark]:
        """Every plan that is needed, once, reduced to the runs whose data is there."""
        names = dict.fromkeys(part.plan for item in self.items.values() for part in self.parts(item))
        if not names:
            some = ", ".join(self.items)
            raise UserError(f"--quick has nothing for {some}: they need further data or a second backbone")
        return {name: self._benchmark(self._read(name), name) for name in names}

    @cached_property
    def missing(self) -> dict[str, tuple[Missing, ...]]:
        """By plan."""
        return {name: _missing(self._read(name)) for name in self.benchmarks}

    def _read(self, name: str) -> Plan:
        path = self._folder / f"{name}.toml"
        plan = Plan.of(with_root(read_toml(path), self.root), where=path.name)
        for cell in plan.cells:
            try:
                check_config(cell.config)
            except UserError as error:
                raise UserError(f"{path.name}, {cell.row} on {cell.column}: {error}") from None
        return plan

    @property
    def _folder(self) -> Path:
        kind = "quick" if self.quick else "paper"
        return self.plans or Path(str(files("dprotonet.experiment.reproduce"))) / "plans" / kind

    def _benchmark(self, plan: Plan, name: str) -> Benchmark:
        gone = {item.data for item in _missing(plan)}
        there = tuple(cell for cell in plan.cells if cell.config.data.data not in gone)
        reduced = replace(plan, cells=there)
        return Benchmark(reduced, self.out / name, self.cache, self.splits, runs=self.out / "runs")

    # ── before ──

    def planned(self) -> Iterator[Planned]:
        """What would be done, plan by plan; measuring the time takes a step of every backbone."""
        estimate = Estimate()
        for name, benchmark in self.benchmarks.items():
            known, problems = self._known(benchmark)
            whole = self._read(name)
            there = {cell.folder for cell in benchmark.plan.cells}
            gone = replace(whole, cells=tuple(cell for cell in whole.cells if cell.folder not in there))
            runs = [run for cell in benchmark.plan.cells for run in cell.runs]
            finished = sum(benchmark.finished(run) for run in runs)
            yield Planned(
                name,
                self._users(name),
                finished,
                len(runs),
                self.missing[name],
                self._seconds(estimate, benchmark, benchmark.plan, known),
                sum(len(cell.runs) for cell in gone.cells),
                self._seconds(estimate, benchmark, gone, known),
                problems,
            )

    def _users(self, plan: str) -> tuple[str, ...]:
        wanted = {name: {part.plan for part in self.parts(item)} for name, item in self.items.items()}
        return tuple(name for name, plans in wanted.items() if plan in plans)

    def _seconds(
        self, estimate: Estimate, benchmark: Benchmark, plan: Plan, known: Mapping[str, Images]
    ) -> float:
        left = [run for cell in plan.cells for run in cell.runs if not benchmark.finished(run)]
        total = sum(estimate.training(run, config_digest(run.config), known) for run in left)
        if not left and (benchmark.folder / "results.json").is_file():
            return total  # maps and pictures are made, too
        return total + estimate.heatmaps(plan, known) + estimate.pictures(plan)

    def _known(self, benchmark: Benchmark) -> tuple[dict[str, Images], tuple[str, ...]]:
        """How many images there are, and what cannot be read."""
        found, problems = {}, {}
        for cell in benchmark.plan.cells:
            try:
                splits = self.splits(cell.config.data)
            except UserError as error:
                problems[cell.config.data.data] = str(error)
                continue
            train = len(splits.train) + len(splits.val)
            found[cell.config.data.data] = Images(train, len(splits.test), len(splits.train.classes))
        return found, tuple(problems.values())

    def check(self) -> None:
        """A UserError if no data at all is there, before any work."""
        if any(benchmark.plan.cells for benchmark in self.benchmarks.values()):
            return
        wanted = dict.fromkeys(item for several in self.missing.values() for item in several)
        lines = "; ".join(f"{item.name} into {item.folder}, from {item.address}" for item in wanted)
        raise UserError(f"none of the data is there: get {lines}; or add --quick, which needs no data")

    # ── doing it ──

    def run(self) -> Iterator[tuple[str, BenchmarkStep]]:
        """Train, measure and draw what is missing; after every plan its tables are written."""
        for name, benchmark in self.benchmarks.items():
            for progress in benchmark.run():
                yield f"{name}: runs", progress
            if benchmark.plan.localisation is not None:
                for progress in Localisation(benchmark, benchmark.plan.localisation).run():
                    yield f"{name}: heatmaps", progress
            for progress in benchmark.draw():
                yield f"{name}: pictures", progress
            try:
                save_benchmark(benchmark)
            except Exception as error:  # a table that cannot be written is told, and the others go on
                failure = Failure(name, " ".join(f"{error}".split()) or type(error).__name__)
                yield f"{name}: tables", BenchmarkStep(1, 1, name, failure=failure)

    # ── afterwards ──

    def shown(self, met: Deviations) -> list[Shown]:
        """Every item with what is known of it; deviations are gathered in `met`."""
        return [self._shown(name, item, met) for name, item in self.items.items()]

    def _shown(self, name: str, item: Item, met: Deviations) -> Shown:
        tables, lacking = [], []
        pictures: dict[str, Path] = {}
        for part in self.parts(item):
            lacking += [f"{gone.name} is not in {gone.folder}" for gone in self.missing[part.plan]]
            place = self.out / part.plan / "results.json"
            try:
                content = _content(place)
                if content is None:
                    lacking.append(f"{part.plan}: nothing is finished yet")
                    continue
                found = dict(_pictures(content, place.parent))
                if part.beside is not None:
                    tables.append(compared(self._read(part.plan), content, part.beside, met))
            except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
                lacking.append(f"{place} is damaged, or of another version; it is written anew with its plan")
                continue
            pictures |= {
                word: path
                for word, path in found.items()
                if word.startswith(part.files or ("\0",)) and path.is_file()
            }
        if not self.parts(item):
            lacking.append("not in --quick: it needs further data or a second backbone")
        return Shown(name, item.title, tuple(tables), pictures, tuple(dict.fromkeys(lacking)))


def _pictures(content: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Path]]:
    """By their names in results.json, which may have been written when the folder lay elsewhere."""
    return ((word, folder / Path(path).name) for word, path in content["files"].items())


def with_root(content: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """A plan whose paths below data/ lead below `root`."""

    def moved(tables: Mapping[str, Any]) -> dict[str, Any]:
        data = tables.get("data") or {}
        spec = data.get("data", "") if isinstance(data, dict) else ""
        kind, _, path = spec.partition(":") if isinstance(spec, str) else ("", "", "")
        if not path.startswith(BELOW):
            return dict(tables)
        place = (root.expanduser() / path.removeprefix(BELOW)).resolve()
        return {**tables, "data": {**data, "data": f"{kind}:{place}"}}

    found = moved(content)
    for kind in ("row", "column"):
        if isinstance(found.get(kind), list):
            found[kind] = [moved(item) if isinstance(item, dict) else item for item in found[kind]]
    return found


def _missing(plan: Plan) -> tuple[Missing, ...]:
    found = {}
    for cell in plan.cells:
        kind, _, path = cell.config.data.data.partition(":")
        if path and not Path(path).is_dir():
            source = SOURCES.get(kind)
            name, address = (source.name, source.address) if source else (kind, "its owner")
            found[cell.config.data.data] = Missing(cell.config.data.data, name, path, address)
    return tuple(found.values())


def _content(path: Path) -> dict[str, Any] | None:
    """What a plan found when its tables were last written, perhaps by another version."""
    try:
        content: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        return None
    return content
