"""`dprotonet prune`: a run without the prototypes that look like images of other classes."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from dprotonet.cli.images import check_out
from dprotonet.cli.parse import parsed


@dataclass(frozen=True)
class PruneArguments:
    """Keep a prototype if enough of its nearest training images are of its own class (ProtoPNet's rule)."""

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder; it is not changed."""
    out: Path
    """The run folder to make."""
    nearest: int = 6
    """How many of the nearest training images to look at."""
    least: int = 3
    """How many of them must be of the prototype's class."""
    split: Literal["train", "val", "test"] = "val"
    """Where accuracy before and after is told."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    device: str | None = None
    """Where to compute, such as cuda (default: the CPU)."""


def main(words: list[str]) -> None:
    arguments = parsed(PruneArguments, words, command="prune")
    check_out(arguments.out)
    content = _pruned(arguments)
    if arguments.json:
        json.dump(content, sys.stdout)
        print()
        return
    dropped, left = len(content["dropped"]), len(content["kept"])
    before, after = content["accuracy_before"], content["accuracy_after"]
    print(f"{dropped} prototypes dropped, {left} left; {arguments.split} accuracy {before:.1%} → {after:.1%}")
    print(f"the run is in {arguments.out}")


def _pruned(arguments: PruneArguments) -> dict[str, Any]:
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.evaluation import evaluate_model
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.prune import prune_run
    from dprotonet.inference.prune import PruneRule

    rule = PruneRule(arguments.nearest, arguments.least)
    model = Model.load(arguments.run, device=arguments.device)
    with Reporter(stderr_console()) as reporter:
        pruning = prune_run(
            model,
            arguments.out,
            rule=rule,
            on_progress=lambda done, total: reporter.advance("looking at prototypes", done, total),
        )
    models = {"accuracy_before": model, "accuracy_after": pruning.model}
    return {
        "run": str(arguments.out),
        "kept": list(pruning.kept),
        "dropped": list(pruning.dropped),
        "split": arguments.split,
        **{
            name: evaluate_model(item, model.config.data, split=arguments.split).predictions.accuracy
            for name, item in models.items()
        },
    }
