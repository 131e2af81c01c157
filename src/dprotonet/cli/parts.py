"""`dprotonet parts`: what part each prototype stands for, and what it is called."""

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model


@dataclass(frozen=True)
class PartsArguments:
    """List what part each prototype stands for, and draw its place in many images of one class.

    Names are suggested where the data has part annotations; with --name you give your own. They are stored in
    the run folder, and `explain`, `report` and `serve` use them.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder; its prototypes must be places (--regions points, patches or parts)."""
    name: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A name for a prototype, as NUMBER=NAME, such as 12=beak; may be repeated. Reads no images.
    With --regions parts it is the name of the whole part."""
    class_name: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """The class to draw (default: the first)."""
    images: int = 20
    """Number of nearest training images to examine per prototype."""
    out: Path | None = None
    """Where to write the picture (default: parts.png in the run folder)."""
    data: str | None = None
    """Where the run's data is now, if it has moved."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(PartsArguments, words, command="parts")
    if arguments.images < 1:
        raise UserError(f"--images is {arguments.images}; at least one image has to be looked at")
    given = _given(arguments.name)
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.prototypes.parts import check_has_places, name_parts

    model = Model.load(arguments.run, device=arguments.device)
    check_has_places(model)
    chosen = _chosen_class(model, arguments.class_name)
    picture = None
    if given:
        name_parts(model, given)
    else:
        picture = _look(model, chosen, arguments)
    if arguments.json:
        content = {"run": str(arguments.run), "parts": _listed(model), "sheet": picture and str(picture)}
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(model, arguments.run)
        if picture is not None:
            print(f"{chosen}: {picture}")


def _given(words: tuple[str, ...]) -> dict[int, str]:
    """What `--name` says, by number."""
    found: dict[int, str] = {}
    for word in words:
        number, sign, name = word.partition("=")
        if not sign or not (number.strip().isascii() and number.strip().isdigit()):
            raise UserError(f"--name {word!r} is not NUMBER=NAME, such as 12=beak")
        if int(number) in found:
            raise UserError(f"--name gives prototype {int(number)} two names; give one")
        found[int(number)] = name
    return found


def _chosen_class(model: "Model", name: str | None) -> str:
    if name is not None and name not in model.classes:
        raise UserError(f"--class {name!r} is no class of the run; it has {', '.join(model.classes)}")
    return name or model.classes[0]


def _look(model: "Model", chosen: str, arguments: PartsArguments) -> Path:
    """Suggest names, keep them, and draw the sheet of a class; where that is."""
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.explaining.pictures import save_picture
    from dprotonet.experiment.prototypes.parts import SHEET, look_for_parts, parts_picture
    from dprotonet.experiment.prototypes.split_evidence import splits_of_run

    with Reporter(stderr_console()) as reporter:
        train = splits_of_run(model, partial(reporter.advance, "scan"), moved_to=arguments.data).train
        looking = partial(reporter.advance, "looking for places")
        found = look_for_parts(model, train, images=arguments.images, on_progress=looking)
    path = arguments.out or arguments.run / SHEET
    save_picture(parts_picture(model, train, found, class_name=chosen), path)
    return path


def _listed(model: "Model") -> list[dict[str, Any]]:
    """Every prototype with its place and name."""
    from dataclasses import asdict

    return [
        {
            "prototype": record.prototype,
            "class_name": record.class_name,
            "source": record.source,
            "sources": list(record.sources),
            "place": None if record.place is None else asdict(record.place),
            "name": None if name is None else name.name,
            "share": None if name is None else name.share,
            "given": name is not None and name.given,
        }
        for record, name in ((one, model.part_names.get(one.prototype)) for one in model.prototypes)
    ]


def _show(model: "Model", run: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("class", title=escape(str(run)))
    table.add_column("prototype", justify="right")
    for column in ("part", "share", "place", "source"):
        table.add_column(column, justify="right" if column == "share" else "left")
    shown = None
    for item in _listed(model):
        if shown not in (None, item["class_name"]):
            table.add_section()
        name, shown = "" if shown == item["class_name"] else escape(item["class_name"]), item["class_name"]
        record = model.prototypes[item["prototype"]]
        share = "given" if item["given"] else "" if item["share"] is None else percent(item["share"], 0)
        place = "" if record.place is None else record.place.words
        table.add_row(
            name, str(record.prototype), escape(item["name"] or ""), share, place, escape(record.source)
        )
    console = Console()
    console.print(table)
    console.print(
        "part: what lies under its place most often in the training images of the class nearest to it, or a "
        "letter where that is nothing in half of them; share: how often; place: how far across and down its "
        "training image. Name a part with `dprotonet parts RUN --name 12=beak`.",
        style="dim",
        highlight=False,
    )
