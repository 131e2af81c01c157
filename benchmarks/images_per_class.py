"""From how many images on does it pay to train the backbone too? Validation accuracy over images per class.

    python benchmarks/images_per_class.py --data folder:PETS --sizes 15 30 66 --out curve.json
    python benchmarks/images_per_class.py --data birds --sizes 15 30 60 120 300 --out curve.json

Of photographs a third of the training images judges, the same for all sizes; of the built-in birds 40 further
ones per species. Test images are never opened. Compared are the discriminant of pooled features in closed
form, frozen mode and joint mode at the end of training, with no choice of the best epoch. Rows that are in
--out already are not made again.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dprotonet.compat import keep_freed_memory
from dprotonet.config import Config, DataConfig
from dprotonet.data.base import Splits
from dprotonet.data.subset import Subset
from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.evaluation.baseline import baseline_data
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.files import write_text
from dprotonet.progress import Progress
from dprotonet.training.events import RoundDone

_FOREVER = 1000  # pushes without improvement


def few(splits: Splits, per_class: int, seed: int = 0) -> Splits:
    """So many training images of each class, those of a smaller number among those of a larger one."""
    whole = (
        splits.train if isinstance(splits.train, Subset) else Subset(splits.train, range(len(splits.train)))
    )
    order = np.random.default_rng(seed).permutation(len(whole)).tolist()
    labels = np.asarray(whole.labels)[order]
    kept = [np.asarray(order)[labels == label][:per_class] for label in range(len(whole.classes))]
    rows = sorted(int(row) for rows in kept for row in rows)
    return replace(splits, train=Subset(whole.whole, [whole.indices[row] for row in rows]))


def at_the_end(trainer: Trainer) -> float:
    """Validation accuracy in % after the last push."""
    rounds = [event for event in trainer.run() if isinstance(event, RoundDone)]
    return 100 * rounds[-1].val_accuracy


def row(
    data: dict[str, Any], per_class: int, options: argparse.Namespace, known: RememberedSplits
) -> dict[str, Any]:
    def splits(config: DataConfig, on_progress: Progress | None = None) -> Splits:
        return few(known(config, on_progress), per_class)

    found: dict[str, Any] = {"data": options.data, "per_class": per_class}
    with tempfile.TemporaryDirectory() as folder:
        make: Callable[[str], Trainer] = lambda mode: Trainer(  # noqa: E731
            config(data, mode, options), Path(folder, mode), cache=options.cache, splits=splits
        )
        baselines = finished(baseline_data(make("frozen")))
        found["discriminant"] = round(100 * baselines.result("discriminant")["accuracy"], 2)
        for mode in ("frozen", "joint"):
            found[mode] = round(at_the_end(make(mode)), 2)
    return found


def config(data: dict[str, Any], mode: str, options: argparse.Namespace) -> Config:
    training: dict[str, Any] = {"mode": mode, "patience": _FOREVER}
    if mode == "joint":
        training |= {"frozen_stages": options.frozen_stages}
    return config_from({"recipe": "parts", "data": data, "training": training})


def main() -> None:
    keep_freed_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="birds")
    parser.add_argument("--sizes", type=int, nargs="+", default=[15, 30, 60, 120])
    parser.add_argument("--frozen-stages", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    birds = {"train_per_species": max(options.sizes), "val_per_species": 40}
    data = {"data": options.data, **(birds if options.data == "birds" else {"folds": 3, "fold": 1})}
    rows = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else []
    known = RememberedSplits()
    for size in options.sizes:
        if not any((found["data"], found["per_class"]) == (options.data, size) for found in rows):
            rows.append(row(data, size, options, known))
            write_text(options.out, json.dumps(rows, indent=1))
            print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
