"""k-fold cross-validation, for choosing settings: one run for each fold, and what they come to together.

    OUT/fold-1/ … OUT/fold-k/        run folders, with result.json once they are finished
    OUT/folds.json  OUT/folds.md     each fold, mean and standard deviation

Test images are never looked at. Finished folds are skipped and stopped ones resumed; a fold that another
process is at is left to it, so that several processes can share the work.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from accelerate import PartialState
from torch import Tensor

from dprotonet.config import Config
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.runs.claim import AlreadyClaimed, claimed
from dprotonet.experiment.runs.metrics_file import kept_round
from dprotonet.experiment.runs.result_file import read_result, write_result
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.files import write_text
from dprotonet.launch import is_main, processes
from dprotonet.progress import Progress
from dprotonet.training.events import Event

MEASURES = ("accuracy", "accuracy at the end")
_NOTE = (
    "Validation images of each fold, in %; mean ± standard deviation over folds. The kept model was chosen "
    "on these images, which flatters it a little; the one at the end was not. Test images were not looked at."
)


class FoldStep(NamedTuple):
    """What the run of a fold is doing, or that it is over; `taken`: another process is at it."""

    fold: int
    event: Preparing | Event | None = None
    taken: bool = False


@dataclass(frozen=True)
class CrossValidation:
    """`config.data.folds` runs of one config below the folder `out`."""

    config: Config
    out: Path
    overwrite: bool = False
    cache: Path = field(default_factory=default_cache)
    on_scan: Progress | None = None
    splits: RememberedSplits = field(default_factory=RememberedSplits)
    origins: Mapping[str, str] = field(default_factory=dict)  # of settings, as of `Trainer`

    def run(self) -> Iterator[FoldStep]:
        """Train what is missing, fold by fold; a last step without an event for each."""
        check_config(final_config(self.config))
        self._check_out()
        for fold in range(1, self.config.data.folds + 1):
            try:
                with claimed(self._place(fold)):
                    for event in self._finish(fold):
                        yield FoldStep(fold, event)
                taken = False
            except AlreadyClaimed:
                if processes() > 1:  # the other processes of this run have not heard of it
                    raise
                taken = True
            yield FoldStep(fold, taken=taken)

    def answers(self) -> list[tuple[Tensor, Tensor]]:
        """Labels and predictions (N,) of the validation images of every finished fold, at the end."""
        return [RunFolder(self._place(fold)).read_validation() for fold in self.results()]

    def results(self) -> dict[int, dict[str, Any]]:
        """What the finished folds found, by their number."""
        numbers = range(1, self.config.data.folds + 1)
        read = {fold: read_result(self._place(fold), self._config(fold)) for fold in numbers}
        return {fold: result for fold, result in read.items() if result is not None}

    def save(self) -> dict[str, Any]:
        """Write folds.json and folds.md; what the former says."""
        results = self.results()
        content = {
            "data": self.config.data.data,
            "folds": self.config.data.folds,
            "finished": len(results),
            **{name: _spread([found[name] for found in results.values()]) for name in MEASURES},
            "each": [{"fold": fold, **_without_config(found)} for fold, found in results.items()],
        }
        write_text(self.out / "folds.json", json.dumps(content, ensure_ascii=False, indent=1))
        write_text(self.out / "folds.md", markdown(content))
        return content

    def _place(self, fold: int) -> Path:
        return self.out / f"fold-{fold}"

    def _config(self, fold: int) -> Config:
        return replace(self.config, data=replace(self.config.data, fold=fold))

    def _check_out(self) -> None:
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"--out {self.out} is a file; name a folder")
        foreign = self.out.is_dir() and any(self.out.iterdir()) and not any(self.out.glob("fold-*"))
        if foreign:
            raise UserError(f"--out {self.out} is not empty and holds no folds; name another")

    def _finish(self, fold: int) -> Iterator[Preparing | Event]:
        place, config = self._place(fold), self._config(fold)
        if not self.overwrite and read_result(place, config) is not None:
            return
        begun = (place / "config.toml").is_file()
        trainer = Trainer(
            config,
            place,
            resume=begun and not self.overwrite,
            overwrite=self.overwrite,
            cache=self.cache,
            on_scan=self.on_scan,
            splits=self.splits,
            origins=self.origins,
        )
        yield from trainer.run_claimed()
        if is_main():
            images = self.splits(config.data)
            counts = {"train images": len(images.train), "val images": len(images.val)}
            write_result(place, config, {**counts, **_outcome(RunFolder(place))})
        PartialState().wait_for_everyone()  # so that every process finds the result


def markdown(content: dict[str, Any]) -> str:
    """A line a fold, and what they come to."""
    heads = ["fold", "images", "accuracy", "at the end", "kept at epoch", "seconds"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for found in content["each"]:
        shares = [f"{100 * found[name]:.1f}" for name in MEASURES]
        cells = [found["fold"], found["val images"], *shares, found["epoch"], f"{found['seconds']:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    means = [_written(content[name]) for name in MEASURES]
    total = sum(found["val images"] for found in content["each"])
    lines.append(f"| **all** | {total} | {means[0]} | {means[1]} | | |")
    missing = content["folds"] - content["finished"]
    unfinished = f" {missing} of {content['folds']} folds are not finished." if missing else ""
    return "\n".join([*lines, "", _NOTE + unfinished, ""])


def _outcome(run: RunFolder) -> dict[str, Any]:
    records = run.read_metrics()
    rounds = [item for item in records if item["event"] == "RoundDone"]
    kept = kept_round(records, run.metrics)
    return {
        "accuracy": kept["val_accuracy"],
        "accuracy at the end": rounds[-1]["val_accuracy"],
        "epoch": kept["epoch"],
        "seconds": sum(item.get("seconds", 0.0) for item in records),
    }


def _without_config(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "config"}


def _spread(found: list[float]) -> dict[str, float | None]:
    return {
        "mean": fmean(found) if found else None,
        "deviation": stdev(found) if len(found) > 1 else None,
    }


def _written(spread: dict[str, float | None]) -> str:
    mean, deviation = spread["mean"], spread["deviation"]
    if mean is None:
        return "–"
    return f"{100 * mean:.1f}" + ("" if deviation is None else f" ± {100 * deviation:.1f}")
