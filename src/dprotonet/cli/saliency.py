"""`dprotonet saliency`: where any classifier looks, a timm model or a trained DProtoNet."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from dprotonet.cli.explain_arguments import PresetName, chosen_preset, tell_replaced
from dprotonet.cli.images import check_out, complain_if_none, readable
from dprotonet.cli.parse import parsed
from dprotonet.cli.source import TaskName
from dprotonet.errors import UserError
from dprotonet.interpretation.explainers import EXPLAINERS, described
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.experiment.explaining.saliency import Saliency
    from dprotonet.experiment.trained.classifier import Classifier

if TYPE_CHECKING:
    Method = str
else:
    Method = tyro.extras.literal_type_from_choices(EXPLAINERS)

_ON_A_SHEET = 24  # images


@dataclass(frozen=True)
class SaliencyArguments:
    """A heatmap of each image for one class: dprotonet saliency --model timm:NAME IMAGE… --out DIR."""

    images: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Image files; without --model, a run folder before them."""
    out: Path
    """Folder for the results, a subfolder for every image and one sheet of all."""
    model: str | None = None
    """timm:NAME[:WEIGHTS], where WEIGHTS is imagenet (default), packaged, none or a file; or a run folder."""
    method: Annotated[Method, tyro.conf.arg(help=f"By what: {described()}.")] = "mdm"
    preset: PresetName = "fast"
    """How mdm learns its masks; sampled needs no gradients, paper is the paper's own and slow."""
    iterations: int | None = None
    """Steps of mdm (default: the preset's)."""
    target: str | None = None
    """The class to explain, a number or a name, or several with commas between them (default: the predicted
    one; of several labels all that are predicted); of a regression up or down."""
    versus: str | None = None
    """Show what speaks for the class rather than for this one: a number, a name, or runner-up for the
    likeliest other class. A class that is this one itself is compared with its runner-up."""
    top: int = 10
    """Where an image may have several labels: how many of those predicted are explained at most."""
    task: TaskName = None
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(SaliencyArguments, words, command="saliency")
    name, images = _model_and_images(arguments)
    check_out(arguments.out)
    from dprotonet.experiment.trained.classifier import Classifier
    from dprotonet.experiment.trained.image_like import square

    classifier = Classifier.open(name, device=arguments.device, task=arguments.task)
    good, skipped = readable(images, lambda path: square(path, size=classifier.size))
    found = _explained(classifier, good, arguments)
    content = _saved(found, arguments, name)
    tell_replaced(content["explanations"], arguments.versus)
    if arguments.json:
        json.dump({**content, "skipped": skipped}, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(content)
    complain_if_none(found, skipped)


def _model_and_images(arguments: SaliencyArguments) -> tuple[str, Sequence[Path]]:
    """The network is --model, or the run folder that stands before the images."""
    if arguments.model is not None:
        name, images = arguments.model, arguments.images
    elif arguments.images and arguments.images[0].is_dir():
        name, images = str(arguments.images[0]), arguments.images[1:]
    else:
        raise UserError("which network? give --model timm:NAME[:WEIGHTS], or a run folder before the images")
    if not images:
        raise UserError("no image given; usage: dprotonet saliency --model timm:NAME IMAGE… --out DIR")
    return name, images


def _explained(
    classifier: "Classifier", images: Sequence[Path], arguments: SaliencyArguments
) -> list["Saliency"]:
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.explaining.saliency import saliency

    with Reporter(stderr_console()) as reporter:
        return saliency(
            classifier,
            images,
            method=arguments.method,
            preset=chosen_preset(arguments.preset, arguments.iterations),
            target=_targets(arguments.target, classifier.classes),
            versus=arguments.versus,
            top=arguments.top,
            on_progress=lambda done, total: reporter.advance(
                f"explaining by {arguments.method}", done, total
            ),
        )


def _targets(text: str | None, classes: Sequence[str]) -> str | list[str] | None:
    """At commas, unless it is the name of a class, which may hold some."""
    if text is None or text in classes or "," not in text:
        return text
    return [name.strip() for name in text.split(",") if name.strip()]


def _saved(found: Sequence["Saliency"], arguments: SaliencyArguments, model: str) -> dict[str, Any]:
    """A folder for every image and a sheet of all; what there is to say about them."""
    from dprotonet.experiment.explaining.explanation_files import folder_for, save_saliency
    from dprotonet.experiment.explaining.pictures import save_picture
    from dprotonet.experiment.explaining.saliency import saliency_picture

    saved = [
        save_saliency(
            item, folder_for(arguments.out, number, item.name), model=model, method=arguments.method
        )
        for number, item in enumerate(found)
    ]
    sheets = []
    for start in range(0, len(found), _ON_A_SHEET):
        path = arguments.out / (f"sheet-{start // _ON_A_SHEET + 1}.png" if start else "sheet.png")
        save_picture(saliency_picture(found[start : start + _ON_A_SHEET]), path)
        sheets.append(str(path))
    return {"explanations": saved, "sheets": sheets}


def _show(content: dict[str, Any]) -> None:
    from dprotonet.experiment.runs.familiarity import warning_of

    told = set[str]()
    for item in content["explanations"]:
        if said := warning_of(item["distance"]):
            print(f"{item['name']}: {said}")
        value = f"value {item['value']:.4g}" if "value" in item else percent(item["probability"])
        rather = f", rather than {item['versus']}" if item["versus"] is not None else ""
        print(f"{item['name']}: {item['class_name']} ({value}){rather}: {item['folder']}")
        if item["left_out"] and item["name"] not in told:
            told.add(item["name"])
            print(
                f"{item['name']}: {item['left_out']} more labels are predicted; --top explains more of them"
            )
    for sheet in content["sheets"]:
        print(f"sheet: {sheet}")
