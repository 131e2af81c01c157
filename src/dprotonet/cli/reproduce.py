"""`dprotonet reproduce`: the paper's tables and figures, each by one command."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed
from dprotonet.errors import ComputationError, UserError

if TYPE_CHECKING:
    from dprotonet.experiment.benchmark.run import Failure
    from dprotonet.experiment.reproduce.reproduction import Planned, Reproduction


@dataclass(frozen=True)
class ReproduceArguments:
    """Run what the paper's tables and figures need, and show our numbers beside the paper's."""

    what: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """table-1 … table-5, figure-5 … figure-17, tables, figures, or all (the default)."""
    data_root: Path = Path("data")
    """Folder with CUB_200_2011, stanford_cars, rsna and PALM; missing ones are reported and left out."""
    out: Path = Path("runs/reproduce")
    """Folder for runs, tables and pages; the same command continues there (--quick: runs/reproduce-quick)."""
    quick: bool = False
    """All of it on the built-in birds with a frozen EfficientNet-Lite0, within 45 minutes on two cores."""
    plan: bool = False
    """Only list what would be run, with an estimate of the time, and which data is missing."""
    plans: Path | None = None
    """A folder with your own plans, named like those of configs/paper or configs/quick."""
    cache: Path | None = None
    """Cache folder for features of frozen mode (default: the user's cache folder, or $DPROTONET_CACHE)."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> None:
    arguments = parsed(ReproduceArguments, words, command="reproduce")
    reproduction = _reproduction(arguments)
    if arguments.plan:
        return _list(reproduction, as_json=arguments.json)
    reproduction.check()
    check_out(reproduction.out)
    for gone in dict.fromkeys(item for several in reproduction.missing.values() for item in several):
        print(f"missing: {gone.name} in {gone.folder}; get it from {gone.address}", file=sys.stderr)
    failures = _worked(reproduction)
    content = _save(reproduction)
    if arguments.json:
        json.dump(
            {**content, "failures": [item._asdict() for item in failures]}, sys.stdout, ensure_ascii=False
        )
        print()
    else:
        for kind, path in content["files"].items():
            print(f"{kind}: {path}")
    _complain(reproduction, failures)


def _reproduction(arguments: ReproduceArguments) -> "Reproduction":
    from dprotonet.experiment.build.training import default_cache
    from dprotonet.experiment.reproduce.items import chosen_items
    from dprotonet.experiment.reproduce.reproduction import Reproduction

    out = arguments.out
    if arguments.quick and out == ReproduceArguments.out:
        out = out.with_name(f"{out.name}-quick")
    if arguments.plans is not None and not arguments.plans.is_dir():
        raise UserError(f"--plans {arguments.plans} is not a folder")
    return Reproduction(
        chosen_items(arguments.what),
        out,
        arguments.data_root,
        arguments.quick,
        arguments.plans,
        arguments.cache or default_cache(),
    )


def _worked(reproduction: "Reproduction") -> "list[Failure]":
    from dprotonet.cli.benchmark import Watch
    from dprotonet.cli.progress import Reporter, stderr_console

    current = ""
    with Reporter(stderr_console()) as reporter:
        watch = Watch(reporter)
        for what, progress in reproduction.run():
            plan = what.partition(":")[0]
            if current and plan != current:
                _save(reproduction)  # pages of what is there so far: the rest may take days
            current = plan
            watch.see(what, progress)
    return watch.failures


def _save(reproduction: "Reproduction") -> dict[str, Any]:
    """The pages, and everything on them as JSON; those of some items are named after them."""
    from dprotonet.experiment.reproduce.compared import Deviations
    from dprotonet.experiment.reproduce.items import ITEMS
    from dprotonet.experiment.reproduce.pages import Pages
    from dprotonet.files import write_text
    from dprotonet.report.reproduction import render_reproduction

    met = Deviations()
    shown = reproduction.shown(met)
    kind = "on the built-in birds (quick)" if reproduction.quick else "on the paper's data"
    out = reproduction.out
    pages = Pages(f"DProtoNet's tables and figures, {kind}", shown, met.texts, out)
    stem = "reproduction" if set(reproduction.items) == set(ITEMS) else "-".join(reproduction.items)
    paths = {kind: out / f"{stem}.{kind}" for kind in ("html", "tex", "md", "json")}
    write_text(paths["md"], pages.markdown())
    write_text(paths["html"], render_reproduction(pages))
    write_text(paths["tex"], pages.latex())
    write_text(paths["json"], json.dumps(pages.content(), ensure_ascii=False, indent=1))
    return {**pages.content(), "files": {kind: str(path) for kind, path in paths.items()}}


def _complain(reproduction: "Reproduction", failures: "list[Failure]") -> None:
    gone = {item.name for several in reproduction.missing.values() for item in several}
    reasons = [f"{len(gone)} data sets are missing ({', '.join(sorted(gone))})"] if gone else []
    if failures:
        first = f"the first: {failures[0].run}: {failures[0].reason}"
        reasons.append(f"{len(failures)} things failed; {first}")
    if reasons:
        raise ComputationError(f"not everything could be reproduced: {'; '.join(reasons)}")


# ── --plan ──


def _list(reproduction: "Reproduction", *, as_json: bool) -> None:
    from dprotonet.cli.progress import Reporter, stderr_console

    found: list[Planned] = []
    with Reporter(stderr_console()) as reporter:
        for planned in reproduction.planned():
            found.append(planned)
            reporter.advance("measuring", len(found), len(reproduction.benchmarks), planned.plan)
    if as_json:
        rows = [{**item._asdict(), "missing": [gone._asdict() for gone in item.missing]} for item in found]
        json.dump({"plans": rows, "seconds": sum(item.seconds for item in found)}, sys.stdout)
        print()
        return
    for item in found:
        _tell(item)
    total, later = sum(item.seconds for item in found), sum(item.later for item in found)
    rest = f", and {duration(later)} more once all data is there" if later else ""
    print(
        f"\nall together: about {duration(total)} on this machine{rest}, by a measured step of each backbone"
    )


def _tell(item: "Planned") -> None:
    done = f", {item.finished} finished" if item.finished else ""
    print(f"{item.plan} ({', '.join(item.items)}): {_runs(item.runs)}{done}, about {duration(item.seconds)}")
    for problem in item.problems:
        print(f"  cannot be read: {problem}")
    for gone in item.missing:
        print(f"  missing: {gone.name} in {gone.folder}; get it from {gone.address}")
    if item.later:
        print(f"  with it: {_runs(item.waiting)} more, about {duration(item.later)}")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def duration(seconds: float) -> str:
    """As people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"
