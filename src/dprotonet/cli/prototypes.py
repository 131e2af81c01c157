"""`dprotonet prototypes`: what a run's prototypes are like on the training images."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.prototypes.facts import PrototypeFacts


@dataclass(frozen=True)
class PrototypesArguments:
    """List prototypes class by class, the least pure first; the facts are stored in the run folder."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    data: str | None = None
    """Where the run's data is now, if it has moved; the facts are then computed again."""
    nearest: int = 10
    """Number of nearest training images for purity (at most as many as the class has)."""
    json: bool = False
    """Print one JSON object on stdout, with the names of the nearest images, and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(PrototypesArguments, words, command="prototypes")
    if arguments.nearest < 1:
        raise UserError(f"--nearest is {arguments.nearest}; at least one image has to be looked at")
    model, found = _facts(arguments)
    facts = by_class(found)
    if arguments.json:
        content = {
            "run": str(arguments.run),
            "nearest": arguments.nearest,
            "prototypes": [item.to_json() for item in facts],
            "origins": [_origin(item.prototype, model) for item in facts],
        }
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(facts, model, arguments)


def by_class(facts: "Iterable[PrototypeFacts]") -> "list[PrototypeFacts]":
    """Class by class, the least pure first; of equals the one that decides less."""
    return sorted(facts, key=lambda item: (item.label, item.purity, item.fires, item.prototype))


def _origin(number: int, model: "Model") -> dict[str, Any]:
    """Where a prototype is from, and what its part is called."""
    record, name = model.prototypes[number], model.part_names.get(number)
    return {
        "prototype": number,
        "source": record.source,
        "sources": list(record.sources),
        "place": None if record.place is None else asdict(record.place),
        "part": None if name is None else name.name,
    }


def _facts(arguments: PrototypesArguments) -> "tuple[Model, Sequence[PrototypeFacts]]":
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.prototypes.facts import stored_facts
    from dprotonet.experiment.prototypes.split_evidence import splits_of_run

    model = Model.load(arguments.run, device=arguments.device)
    model.check_prototypes()
    with Reporter(stderr_console()) as reporter:
        scan = partial(reporter.advance, "scan")
        moved = arguments.data
        train = None if moved is None else splits_of_run(model, scan, moved_to=moved).train
        return model, stored_facts(
            model,
            train,
            nearest=arguments.nearest,
            on_scan=scan,
            on_progress=partial(reporter.advance, "looking at prototypes"),
        )


def _show(facts: "Sequence[PrototypeFacts]", model: "Model", arguments: PrototypesArguments) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("class", title=escape(str(arguments.run)))
    for name in ("prototype", "purity", "fires", "weight"):
        table.add_column(name, justify="right")
    table.add_column("duplicates")
    placed = any(record.place is not None for record in model.prototypes)
    for name in ("place", "part") if placed else ():
        table.add_column(name)
    shown = None
    for item in facts:
        if shown not in (None, item.label):
            table.add_section()
        name, shown = "" if shown == item.label else escape(item.class_name), item.label
        numbers = (str(item.prototype), f"{item.purity:.2f}", str(item.fires), f"{item.weight:.2f}")
        where = [escape(word) for word in _whereabouts(item.prototype, model)] if placed else []
        table.add_row(name, *numbers, ", ".join(map(str, item.duplicates)), *where)
    console = Console()
    console.print(table)
    console.print(
        f"purity: share of the {len(facts[0].nearest)} nearest training images (or as many as the class has, "
        "if fewer) that are of the class; "
        "fires: training images in which it says most for the predicted class; weight: to its class; "
        "duplicates: prototypes that say the same"
        f"{'; place: how far across and down its training image' if placed else ''}. "
        "Drop some with `dprotonet prune --drop`.",
        style="dim",
        highlight=False,
    )


def _whereabouts(number: int, model: "Model") -> tuple[str, str]:
    """Place and part of a prototype, as far as they are known."""
    place, name = model.prototypes[number].place, model.part_names.get(number)
    return "" if place is None else place.words, "" if name is None else name.name
