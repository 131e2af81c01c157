"""`dprotonet explain`: where the prototypes that decided are, in the image and in their training images."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from dprotonet.cli.images import check_out, complain_if_none, readable
from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError

if TYPE_CHECKING:
    from dprotonet.experiment.model import Model

Preset = Literal["fast", "best", "paper", "sampled"]
_TOGETHER = 10  # images explained before the first are saved


@dataclass(frozen=True)
class ExplainArguments:
    """Heatmaps of the prototypes that decided, as a sheet for every image, with all maps and numbers."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder, or an .onnx file made by `dprotonet export`."""
    images: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Image files."""
    out: Path
    """Folder for the results, a subfolder for every image."""
    top: int = 3
    """How many prototypes to explain for each image; the rest is summed up."""
    preset: Preset | None = None
    """How the decoder learns its masks (default: what the run's recipe says, fast unless it is the paper's;
    sampled for an .onnx file, as it needs no gradients); paper is the paper's own and slow."""
    iterations: int | None = None
    """Steps of the decoder (default: the preset's)."""
    samples: int | None = None
    """Masked images that the preset sampled asks about (default: its own)."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(ExplainArguments, words, command="explain")
    if not arguments.images:
        raise UserError("no image given; usage: dprotonet explain RUN IMAGE… --out DIR")
    if arguments.top < 1:
        raise UserError(f"--top is {arguments.top}; it must be at least 1")
    check_out(arguments.out)
    if arguments.run.suffix == ".onnx":
        from dprotonet.cli.explain_onnx import explain_onnx

        return explain_onnx(arguments)
    from dprotonet.experiment.model import Model

    model = Model.load(arguments.run, device=arguments.device)
    good, skipped = readable(arguments.images, model.pixels)
    found = _explained(model, good, arguments)
    if arguments.json:
        json.dump({"explanations": found, "skipped": skipped}, sys.stdout, ensure_ascii=False)
        print()
    else:
        show(found)
    complain_if_none(found, skipped)


def chosen_preset(name: str, iterations: int | None, samples: int | None = None) -> Any:
    """The preset's name, or with other iterations or samples a preset of one's own."""
    from dprotonet.interpretation.mdm import preset

    if iterations is not None and iterations < 1:
        raise UserError(f"--iterations is {iterations}; it must be at least 1")
    if samples is not None and samples < 2:
        raise UserError(f"--samples is {samples}; it must be at least 2")
    given = {"iterations": iterations, "samples": samples}
    changes = {key: value for key, value in given.items() if value is not None}
    return preset(name, **changes) if changes else name


def _explained(model: "Model", images: Sequence[Path], arguments: ExplainArguments) -> list[dict[str, Any]]:
    """What is saved of every image, a few images at a time."""
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.explain import Explaining
    from dprotonet.experiment.explanation_files import folder_for, save_explained

    own = model.config.explaining.decoder
    preset = chosen_preset(arguments.preset or own, arguments.iterations, arguments.samples)
    found: list[dict[str, Any]] = []
    with Reporter(stderr_console()) as reporter:

        def advance(now: Explaining) -> None:
            reporter.advance(f"explaining {now.what}", now.done, now.total)

        for start in range(0, len(images), _TOGETHER):
            block = images[start : start + _TOGETHER]
            for image, item in zip(
                block, model.explain(block, top=arguments.top, preset=preset, on_step=advance), strict=True
            ):
                folder = folder_for(arguments.out, len(found), image.name)
                found.append(save_explained(item, folder, title=image.name))
    return found


def show(found: Sequence[dict[str, Any]]) -> None:
    """For people: the prediction, what spoke for and against it, and where the sheet is."""
    from dprotonet.experiment.familiarity import warning_of
    from dprotonet.figures.words import looks_like

    for item in found:
        print(f"{item['name']}: {item['class_name']} ({item['probability']:.1%})")
        for row in item["rows"]:
            name = f"{row['class_name']} #{row['prototype']} of {row['source']}"
            ahead = row["ahead"] and f" ({row['ahead']})"
            print(f"  {looks_like(row['part'])} {name}: {row['contribution']:+.3f}{ahead}")
        if said := warning_of(item["distance"]):
            print(f"  {said}")
        print(f"  sheet: {Path(item['folder'], item['sheet'])}")
