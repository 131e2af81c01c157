"""`dprotonet sanity`: do the heatmaps change when the network's weights are drawn anew?"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprotonet.cli.compare import method_names, told
from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed
from dprotonet.cli.source import AllowLeaks, AnyImages, Device, Json, RunOrTimm, Split, TaskName, images_of
from dprotonet.errors import ComputationError, UserError


@dataclass(frozen=True)
class SanityArguments:
    """Randomise the network layer by layer; report the rank correlation of heatmaps with the intact one."""

    model: RunOrTimm
    out: Path
    """Folder for sanity.json and sanity.png."""
    data: AnyImages = None
    split: Split = "test"
    methods: str = "mdm,gradcam"
    """Methods as in `dprotonet compare`, separated by commas."""
    limit: int = 4
    """Number of images, sampled from the split (at most all of them)."""
    stages: int = 8
    """Number of randomisation stages, from the last layer to the first."""
    seed: int = 0
    """Seed of the images and of the random weights."""
    task: TaskName = None
    json: Json = False
    allow_leaks: AllowLeaks = False
    device: Device = None


def main(words: list[str]) -> None:
    arguments = parsed(SanityArguments, words, command="sanity")
    check_out(arguments.out)
    for name in ("limit", "stages"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name} is {getattr(arguments, name)}; it must be at least 1")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.compare.method import method
    from dprotonet.experiment.quality.sanity import SanityCheck
    from dprotonet.experiment.trained.classifier import Classifier
    from dprotonet.files import write_text

    classifier = Classifier.open(arguments.model, device=arguments.device, task=arguments.task)
    names = method_names(arguments.methods)
    for name in names:
        method(name, classifier)  # unknown ones are better found before the work
    with Reporter(stderr_console()) as reporter:
        data = images_of(arguments, classifier, lambda done, total: reporter.advance("scan", done, total))
        check = SanityCheck(
            classifier, data, names, limit=arguments.limit, stages=arguments.stages, seed=arguments.seed
        )
        for progress in check.run():
            reporter.advance("forgetting", progress.done, progress.total, progress.what)
            if progress.failure is not None:
                print(f"dprotonet: {told(progress.failure)}", file=sys.stderr)
    content = {**check.summary(), "picture": str(arguments.out / "sanity.png")}
    write_text(arguments.out / "sanity.json", json.dumps(content, ensure_ascii=False, indent=1))
    check.save_picture(arguments.out / "sanity.png")
    if arguments.json:
        json.dump(content, sys.stdout, ensure_ascii=False)
        print()
    else:
        _show(content, names)
    if check.idle:
        raise ComputationError(f"{', '.join(check.idle)} explained no image; {arguments.out} has the others")


def _show(content: dict[str, Any], names: list[str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("random down to", title=escape(f"{content['network']}, {content['images']} images"))
    for name in names:
        table.add_column(escape(name), justify="right")
    for stage in content["stages"]:
        values = (stage["rank correlation"][name] for name in names)
        table.add_row(escape(stage["layer"]), *("–" if value is None else f"{value:.2f}" for value in values))
    console = Console()
    console.print(table)
    console.print(
        "Mean rank correlation with the intact network's map: it should fall towards 0.", style="dim"
    )
    for name, explained in content["explained"].items():
        if explained < content["images"]:
            note = f"{name}: {explained} of {content['images']} images, it failed on the others"
            console.print(note, style="dim", soft_wrap=True, markup=False, highlight=False)
    console.print(f"picture: {content['picture']}", soft_wrap=True, markup=False, highlight=False)
