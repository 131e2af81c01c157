"""`dprotonet reliability`: from when on the two places of a row do not look alike, from validation images."""

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.errors import UserError
from dprotonet.percent import percent


@dataclass(frozen=True)
class ReliabilityArguments:
    """Set the limit of the warning about rows whose two places do not look alike, from known images."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder; its row_places.json is written."""
    share: float = 0.05
    """Share of the rows of rightly answered images that may get a warning (false positives)."""
    top: int = 3
    """Number of rows of each image, as in `dprotonet explain`."""
    data: str | None = None
    """Other known images (default: the data the run was trained on)."""
    split: Literal["val", "test"] = "val"
    """The split to measure on; never train, which the run has learned from."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(ReliabilityArguments, words, command="reliability")
    if not 0 < arguments.share < 1:
        raise UserError(f"--share is {arguments.share}; it must lie between 0 and 1")
    if arguments.top < 1:
        raise UserError(f"--top is {arguments.top}; it must be at least 1")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.build.data import build_splits
    from dprotonet.experiment.evaluation.evaluation import choose_split
    from dprotonet.experiment.explaining.row_marks import measured_limit
    from dprotonet.experiment.model import Model

    model = Model.load(arguments.run, device=arguments.device)
    model.check_sources()
    data = replace(model.config.data, data=arguments.data or model.config.data.data)
    with Reporter(stderr_console()) as reporter:
        splits = build_splits(data, lambda done, total: reporter.advance("scan", done, total))
        found = measured_limit(
            model,
            choose_split(splits, arguments.split),
            top=arguments.top,
            share=arguments.share,
            on_progress=lambda done, total: reporter.advance("looking at rows", done, total),
        )
    found.write(arguments.run)
    if arguments.json:
        told = {"interval": found.interval, "caution": found.caution(arguments.share)}
        json.dump({"run": str(arguments.run), **asdict(found), **told}, sys.stdout)
        print()
        return
    print(
        f"{arguments.run}: a row is warned of where more than {percent(found.limit)} of all places fit "
        f"better; so are {percent(found.share)} of the {found.rows} rows of {found.images} rightly answered "
        f"images (95 % interval for new ones {percent(found.interval[0])} to {percent(found.interval[1])})"
    )
    if caution := found.caution(arguments.share):
        print(caution)
