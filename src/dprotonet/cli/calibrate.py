"""`dprotonet calibrate`: what a run's logits mean in per cent; training does it by itself."""

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from dprotonet.cli.parse import parsed


@dataclass(frozen=True)
class CalibrateArguments:
    """Fit the temperature that makes a run's probabilities true, to images it was not trained on."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder; its calibration.json is written."""
    data: str | None = None
    """Other images of the same classes (default: the data the run was trained on)."""
    split: Literal["val", "test"] = "val"
    """The split to fit to; never train, which the run has learned from."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""


def main(words: list[str]) -> None:
    arguments = parsed(CalibrateArguments, words, command="calibrate")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.evaluation.evaluation import evaluate_model, measured_calibration
    from dprotonet.experiment.model import Model

    model = Model.load(arguments.run)
    data = replace(model.config.data, data=arguments.data or model.config.data.data)
    with Reporter(stderr_console()) as reporter:
        evaluation = evaluate_model(
            model,
            data,
            split=arguments.split,
            on_scan=lambda done, total: reporter.advance("scan", done, total),
            on_batch=lambda done, total: reporter.advance("measuring", done, total),
        )
    found = measured_calibration(model, evaluation)
    found.write(arguments.run)
    if arguments.json:
        json.dump({"run": str(arguments.run), **asdict(found)}, sys.stdout)
        print()
        return
    print(
        f"{arguments.run}: logits are divided by {found.temperature:.3g}, fitted to {found.images} images; "
        f"no class is given less than {found.floor:.2g}"
    )
