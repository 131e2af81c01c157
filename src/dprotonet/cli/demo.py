"""`dprotonet demo`: the main job end to end on the built-in birds, in minutes on a laptop."""

import json
import os
import shlex
import shutil
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dprotonet.cli.parse import parsed
from dprotonet.config import AugmentationConfig, Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.errors import UserError
from dprotonet.percent import percent

if TYPE_CHECKING:
    from dprotonet.experiment.demo import DemoResults
    from dprotonet.progress import NamedProgress


@dataclass(frozen=True)
class DemoArguments:
    """Train on birds drawn on the fly, push, evaluate beside simple classifiers, explain two predictions."""

    out: Path = Path("runs/demo")
    """The run folder; an earlier demo there is replaced."""
    json: bool = False
    """Print one JSON object on stdout and nothing else there."""
    cache: Path | None = None
    """Where to keep backbone features (default: the user's cache folder, or $DPROTONET_CACHE)."""
    data: DataConfig = field(default_factory=DataConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(mode="frozen", augmentations=2, workers=2)
    )
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)


def main(words: list[str]) -> None:
    arguments = parsed(DemoArguments, words, command="demo")
    rival = arguments.network.network
    if rival != "dprotonet":
        raise UserError(f"the demo is of DProtoNet; use dprotonet train --network {rival} --out FOLDER")
    if arguments.training.mode != "frozen":
        raise UserError("the demo is of frozen mode; use dprotonet train --data birds --out FOLDER")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.build.training import default_cache
    from dprotonet.experiment.demo import Demo
    from dprotonet.experiment.runs.trainer import Trainer

    console = stderr_console()
    config = Config(arguments.data, arguments.network, arguments.training, arguments.augmentation)
    trainer = Trainer(config, arguments.out, overwrite=True, cache=arguments.cache or default_cache())
    with Reporter(console) as reporter:
        reporter.watch(trainer.run())
        found = Demo(trainer).results(reporter.advance)
        results = {**found.summary, "report": _report(found, arguments.out, reporter.advance)}
    if arguments.json:
        json.dump(results, sys.stdout, ensure_ascii=False)
        print()
        return
    print(
        f"\nDProtoNet {percent(results['accuracy'])}, linear probe {percent(results['probe_accuracy'])}, "
        f"discriminant {percent(results['discriminant_accuracy'])} (test accuracy)"
    )
    for name, path in results["pictures"].items():
        print(f"{name + ':':<18}{path}")
    print(f"{'report:':<18}{results['report']}")
    print(next_command(arguments.out))


def next_command(run: Path) -> str:
    """What to do with the run, as it can be typed here: the page, where what it needs is installed."""
    from dprotonet.cli.serve import missing_packages

    words = f"explain {shlex.quote(str(run))} IMAGE --out explained"
    if not missing_packages():
        words = f"serve {shlex.quote(str(run))}"
    return f"next: {_this_command()} {words}"


def _this_command() -> str:
    """`dprotonet`, or its path where no environment has been activated, as after `make demo`."""
    ours = shutil.which("dprotonet", path=sysconfig.get_path("scripts"))
    if ours is None:
        return f"{shlex.quote(sys.executable)} -m dprotonet"
    on_path = shutil.which("dprotonet")
    if on_path is not None and os.path.samefile(on_path, ours):
        return "dprotonet"
    below = Path(ours).is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(ours) if below else ours)


def _report(found: "DemoResults", folder: Path, on_progress: "NamedProgress") -> str:
    """All of it on one page; heatmaps that the demo has made are not made again, and few others are."""
    from dprotonet.cli.report import written
    from dprotonet.report.options import AtHand, ReportOptions

    places = {
        (index, row.item.prototype): row.input.heatmap.cpu()
        for index, item in found.explained.items()
        for row in item.rows
    }
    wishes = ReportOptions(sure=1, unsure=1, mistakes=1, top=2)
    at_hand = AtHand(found.splits, found.evaluation, places)
    content = written(found.model, folder / "report.html", wishes, on_progress=on_progress, at_hand=at_hand)
    return str(content["report"])
