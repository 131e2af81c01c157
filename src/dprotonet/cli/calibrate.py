"""`dprotonet calibrate`: what a run's logits mean in per cent; training does it by itself."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dprotonet.cli.parse import parsed
from dprotonet.cli.source import AllowLeaks, Json, RunFolderPath, SameClasses, data_of
from dprotonet.cli.written import tell_written
from dprotonet.errors import UserError

if TYPE_CHECKING:
    from dprotonet.cli.progress import Reporter
    from dprotonet.experiment.model import Model
    from dprotonet.experiment.runs.calibration import Calibration


@dataclass(frozen=True)
class CalibrateArguments:
    """Fit the temperature that makes a run's probabilities true, to images it was not trained on."""

    run: RunFolderPath
    data: SameClasses = None
    split: Literal["val", "test"] | None = None
    """The split to fit to (default: val); never train, which the run has learned from."""
    folds: int | None = None
    """Fit to the training images instead, each answered by a network that was trained without it: so many
    networks are trained. Default: 5 in frozen mode with fewer than 200 validation images, else 0."""
    cache: Path | None = None
    """Cache folder for features of frozen mode (default: the user's cache folder, or $DPROTONET_CACHE)."""
    json: Json = False
    allow_leaks: AllowLeaks = False


def main(words: list[str]) -> None:
    arguments = parsed(CalibrateArguments, words, command="calibrate")
    if arguments.folds and (arguments.data is not None or arguments.split is not None):
        raise UserError("--folds is of the run's own training images: leave out --data and --split")
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.model import Model

    model = Model.load(arguments.run)
    with Reporter(stderr_console()) as reporter:
        found = _calibrated(model, arguments, reporter)
    found.write(arguments.run)
    content = {name: value for name, value in asdict(found).items() if name != "scores"}
    tell_written(
        arguments,
        content,
        f"logits are divided by {found.temperature:.3g}, fitted to {found.images} {found.source}; "
        f"no class is given less than {found.floor:.2g}",
    )


def _calibrated(model: "Model", arguments: CalibrateArguments, reporter: "Reporter") -> "Calibration":
    """On folds where that is asked for, or nothing is asked for and validation images are few."""
    from dprotonet.experiment.build.training import default_cache
    from dprotonet.experiment.evaluation.evaluation import evaluate_model, measured_calibration
    from dprotonet.experiment.runs.finished import finished
    from dprotonet.experiment.runs.out_of_fold import fold_calibration

    def scanned(done: int, total: int) -> None:
        reporter.advance("scan", done, total)

    data = data_of(arguments, model.config.data)
    if arguments.folds != 0 and arguments.data is None and arguments.split is None:
        cache = arguments.cache or default_cache()
        work = fold_calibration(arguments.run, folds=arguments.folds, cache=cache, on_scan=scanned)
        if (found := finished(work, reporter.show)) is not None:
            return found
    evaluation = evaluate_model(
        model,
        data,
        split=arguments.split or "val",
        on_scan=scanned,
        on_batch=lambda done, total: reporter.advance("measuring", done, total),
    )
    return measured_calibration(model, evaluation)
