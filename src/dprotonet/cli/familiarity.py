"""`dprotonet familiarity`: from when on an image is like nothing a run knows; training does it by itself."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dprotonet.cli.parse import parsed
from dprotonet.cli.written import tell_written
from dprotonet.errors import UserError


@dataclass(frozen=True)
class FamiliarityArguments:
    """Measure which images are known, and set the limits of the warning about others."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder; its familiarity.json and familiarity.safetensors are written."""
    share: float = 0.05
    """Share of known images that may get a warning (false positives)."""
    data: str | None = None
    """Other known images (default: the data the run was trained on), with a training split."""
    split: Literal["val", "test"] = "val"
    """The split that limits are set on."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(FamiliarityArguments, words, command="familiarity")
    if not 0 < arguments.share < 1:
        raise UserError(f"--share is {arguments.share}; it must lie between 0 and 1")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.build.data import build_splits
    from dprotonet.experiment.evaluation.evaluation import choose_split
    from dprotonet.experiment.model import Model

    model = Model.load(arguments.run, device=arguments.device, several_labels=True)
    data = replace(model.config.data, data=arguments.data or model.config.data.data)
    with Reporter(stderr_console()) as reporter:
        splits = build_splits(data, lambda done, total: reporter.advance("scan", done, total))
        found = model.measured_familiarity(
            choose_split(splits, arguments.split),
            train=splits.train,
            share=arguments.share,
            on_progress=lambda done, total: reporter.advance("measuring", done, total),
        )
    found.write(arguments.run)
    tell_written(arguments, found.facts(), found.words)
