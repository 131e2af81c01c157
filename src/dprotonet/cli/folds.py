"""`dprotonet train --folds k`: cross-validation, a run for each fold."""

from pathlib import Path
from typing import TYPE_CHECKING

from dprotonet.errors import ComputationError

if TYPE_CHECKING:
    from dprotonet.experiment.settings.recipes import Resolved


def cross_validate(resolved: "Resolved", out: Path, *, overwrite: bool, cache: Path | None) -> None:
    """Train what is missing, fold by fold, and print what all of them come to."""
    from dprotonet.cli.interrupted import if_stopped
    from dprotonet.cli.progress import Reporter, stderr_console
    from dprotonet.experiment.build.training import default_cache
    from dprotonet.experiment.runs.cross_validation import CrossValidation

    console, config, taken = stderr_console(), resolved.config, []
    again = "the same command goes on from there" + (", without --overwrite" if overwrite else "")
    with if_stopped(lambda: again), Reporter(console) as reporter:
        validation = CrossValidation(
            config,
            out,
            origins=resolved.origins,
            overwrite=overwrite,
            cache=cache or default_cache(),
            on_scan=lambda done, total: reporter.advance("scan", done, total),
        )
        current = 0
        for step in validation.run():
            if step.fold != current:
                current = step.fold
                console.print(f"fold {step.fold} of {config.data.folds}", style="bold")
            if step.event is not None:
                reporter.show(step.event)
            taken += [step.fold] * step.taken
    if not console.quiet:  # the main process of a distributed run
        validation.save()
        print((out / "folds.md").read_text(encoding="utf-8"))
        print(f"in numbers: {out / 'folds.json'}")
    if taken:
        folds = ", ".join(map(str, taken))
        raise ComputationError(
            f"another process is at fold {folds}; the same command has the whole table when it has finished"
        )
