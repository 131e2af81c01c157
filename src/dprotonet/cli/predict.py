"""`dprotonet predict`: classify images and say why."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dprotonet.cli.images import check_out, complain_if_none, named_images
from dprotonet.cli.parse import parsed
from dprotonet.cli.predict_several import predict_several
from dprotonet.cli.predict_table import is_table, predict_table
from dprotonet.cli.source import Device
from dprotonet.errors import UserError
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.trained.prediction import Prediction
    from dprotonet.training.processes import Group


@dataclass(frozen=True)
class PredictArguments:
    """Classify images and list the deciding prototypes. Unreadable images are reported and skipped."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Image files, folders (with all below them) and patterns such as 'photos/**/*.jpg'."""
    top: int = 5
    """Number of prototypes to list (and, with --out FOLDER, to draw) per image; the others are summed."""
    out: Path | None = None
    """A folder: also save a picture of the evidence for each image. FILE.csv or FILE.parquet: write one row
    per image into a table instead, for any number of images; interrupted, the same command goes on."""
    marks: bool = False
    """With --out FOLDER: each row of the pictures also says how reliable it is (docs/clinical.md). It takes
    about ten more passes per image."""
    overwrite: bool = False
    """Replace the table of --out, if it is there."""
    classes: int = 3
    """Number of likeliest classes per row of a table."""
    coverage: float | None = None
    """Such as 0.9: also the prediction set, the classes that the true one is among for nine images in ten."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    batch_size: int = 32
    """Images per forward pass."""
    device: Device = None


def main(words: list[str]) -> None:
    arguments = parsed(PredictArguments, words, command="predict")
    if not arguments.images:
        raise UserError("no image given; usage: dprotonet predict RUN IMAGE…")
    if min(arguments.top, arguments.batch_size, arguments.classes) < 1:
        raise UserError("--top, --batch-size and --classes must be at least 1")
    if arguments.out is not None and is_table(arguments.out):
        if arguments.marks:
            raise UserError("--marks is for the pictures of --out FOLDER, and a table has none")
        return predict_table(arguments)
    if arguments.marks and arguments.out is None:
        raise UserError("--marks is for the pictures of --out FOLDER")
    if arguments.overwrite:
        raise UserError("--overwrite is for a table, --out FILE.csv or FILE.parquet")
    return _predict_and_show(arguments)


def _predict_and_show(arguments: PredictArguments) -> None:
    if arguments.out is not None:
        check_out(arguments.out)
    from dprotonet.experiment.model import Model
    from dprotonet.training.processes import Group

    group = Group.joined(arguments.device)
    model = Model.load(arguments.run, device=arguments.device, several_labels=True)
    model.check_coverage(arguments.coverage)
    if model.several_labels:
        return predict_several(arguments, model, group)
    if arguments.out is not None:
        model.check_sources()
    predictions, skipped = _predictions(model, arguments, group)
    if not group.is_main:
        return
    if arguments.out is not None:
        _save_pictures(model, predictions, arguments)
    if arguments.json:
        content = {"predictions": [as_json(item, arguments.top) for item in predictions], "skipped": skipped}
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(predictions, arguments.top)
    complain_if_none(predictions, skipped)


def _predictions(
    model: "Model", arguments: PredictArguments, group: "Group"
) -> tuple[list["Prediction"], dict[str, str]]:
    """Predictions in order, batch by batch, and the images that could not be read with the reason."""
    from dprotonet.experiment.trained.answered_files import AnsweredFile, answered_together, batches_of

    def said(item: AnsweredFile) -> "tuple[str, Prediction | None, str]":
        path = str(item.path)
        if item.answer is None:
            return path, None, str(item.error)
        return path, item.answer.prediction(path, coverage=arguments.coverage), ""

    good, skipped = [], {}
    batches = batches_of(named_images(arguments.images), arguments.batch_size)
    for batch in answered_together(model, batches, group, said):
        for path, prediction, error in batch:
            if prediction is not None:
                good.append(prediction)
            else:
                skipped[path] = error
                print(f"dprotonet: skipped: {error}", file=sys.stderr)
    return good, skipped


def as_json(prediction: "Prediction", top: int) -> dict[str, Any]:
    """A prediction with its `top` evidence; `rest` is what the other prototypes contribute.

    Whether the image is familiar comes before its class.
    """
    found = asdict(prediction)
    first = {key: found.pop(key) for key in ("name", "familiar", "distance")}
    content = {**first, **{key: value for key, value in found.items() if key != "evidence"}}
    shown = prediction.evidence[:top]
    content["evidence"] = [asdict(item) for item in shown]
    content["rest"] = prediction.logit - sum(item.contribution for item in shown)
    return content


def _show(predictions: Sequence["Prediction"], top: int) -> None:
    from rich.console import Console, JustifyMethod
    from rich.markup import escape
    from rich.table import Table

    from dprotonet.experiment.runs.familiarity import warning_of

    console = Console()
    for item in predictions:
        table = Table()
        rival = next((row.rival for row in item.evidence if row.lead is not None), None)
        leads = [] if rival is None else ["lead"]
        for column in ("looks like", "from", "similarity", "× weight", "= points", *leads):
            justify: JustifyMethod = "left" if column in ("looks like", "from") else "right"
            table.add_column(column, justify=justify, overflow="fold")
        for row in item.evidence[:top]:
            part = row.part and f", {row.part}"
            name, source = escape(f"{row.class_name} #{row.prototype}{part}"), escape(row.source)
            numbers = [f"{row.similarity:.3f}", f"{row.weight:.3f}", f"{row.contribution:.3f}"]
            numbers += ["" if row.lead is None else f"{row.lead:.3f}" for _ in leads]
            table.add_row(name, source, *numbers)
        rest = item.logit - sum(row.contribution for row in item.evidence[:top])
        if others := len(item.evidence[top:]):
            table.add_row(f"{others} other{'s' * (others > 1)}", "", "", "", f"{rest:.3f}")
        if item.evidence:
            table.add_section()
        table.add_row("logit", "", "", "", f"{item.logit:.3f}")
        if rival is not None:
            table.caption = escape(f"lead: points ahead of {rival}, the likeliest other class")
        if said := warning_of(item.distance):
            console.print(escape(f"{item.name}: {said}"), style="bold yellow", soft_wrap=True)
        head = f"{item.name}: {item.class_name} ({percent(item.probability)})"
        console.print(escape(head), style="italic", highlight=False, soft_wrap=True)
        console.print(table)
        if item.class_set is not None and item.coverage is not None:
            said = f"{', '.join(item.class_set)} (the true class is among such in {percent(item.coverage)})"
            console.print(escape(said), soft_wrap=True)


def _save_pictures(model: "Model", predictions: Sequence["Prediction"], arguments: PredictArguments) -> None:
    from dprotonet.experiment.explaining.evidence_picture import evidence_picture
    from dprotonet.experiment.explaining.pictures import save_picture

    assert arguments.out is not None
    for number, item in enumerate(predictions):
        path = arguments.out / f"{number:04d}-{Path(item.name).stem}.png"
        title = Path(item.name).name
        drawn = evidence_picture(
            model, item.name, item, title=title, rows=arguments.top, marks=arguments.marks
        )
        save_picture(drawn, path)
        print(f"evidence of {item.name}: {path}", file=sys.stderr)
