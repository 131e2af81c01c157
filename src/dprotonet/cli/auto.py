"""`dprotonet train --mode auto`: whether the backbone should learn, tried out before the run itself."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dprotonet.config import Config
    from dprotonet.experiment.runs.choose_mode import ModeChoice, ModeTrials


def choose_mode(
    config: "Config", out: Path, *, overwrite: bool, cache: Path | None
) -> "tuple[ModeTrials, ModeChoice]":
    """Run the trials with a bar and a line for each fold, and say what was decided."""
    from dprotonet.cli.interrupted import if_stopped
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.build.training import default_cache
    from dprotonet.experiment.runs.choose_mode import FOLDS, ModeTrials, Trial
    from dprotonet.experiment.runs.finished import finished
    from dprotonet.experiment.runs.run_folder import RunFolder

    console = stderr_console()
    RunFolder(out).check_free(overwrite=overwrite)  # before hours of trials
    with (
        if_stopped(lambda: "the same command goes on with the trials"),
        Reporter(console) as reporter,
    ):
        trials = ModeTrials(
            config,
            out,
            cache=cache or default_cache(),
            on_scan=lambda done, total: reporter.advance("scan", done, total),
        )
        current = None

        def show(trial: Trial) -> None:
            nonlocal current
            if (trial.mode, trial.step.fold) != current:
                current = (trial.mode, trial.step.fold)
                console.print(f"trial of mode {trial.mode}, fold {trial.step.fold} of {FOLDS}", style="bold")
            if trial.step.event is not None:
                reporter.show(trial.step.event)

        choice = finished(trials.run(), show)
    console.print(choice.told(), style="bold", soft_wrap=True)
    return trials, choice
