"""Settings compared by cross-validation inside training images, in frozen mode unless told otherwise; test
images are never opened.

    python benchmarks/recipe_folds.py --data cub:PATH --folds 3 --name cluster training.cluster=0.0
    python benchmarks/recipe_folds.py --data cub:PATH --folds 3 --only 1 training.mode='"joint"'
    python benchmarks/recipe_folds.py --data birds --folds 0 --name masks recipe=masks data.val_per_species=60

Without folds, the validation split judges. Runs do not stop early: printed is the accuracy before and after
every push, the mean over folds. One JSON object a call.
"""

import argparse
import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.training.events import PushDone, RoundDone

_FOREVER = 1000  # pushes without improvement


def tables_of(words: list[str]) -> dict[str, Any]:
    """`section.key=value` with values as in TOML, and `recipe=NAME`."""
    tables: dict[str, Any] = {"recipe": "parts", "data": {}, "training": {}, "network": {}}
    for word in words:
        name, _, value = word.partition("=")
        section, _, key = name.rpartition(".")
        if section:
            tables.setdefault(section, {})[key] = tomllib.loads(f"value = {value}")["value"]
        else:
            tables[name] = value
    return tables


def pushes(trainer: Trainer) -> dict[str, list[float]]:
    """Validation accuracy in % before each push, and when the round is judged."""
    found: dict[str, list[float]] = {"before": [], "after": []}
    for event in trainer.run():
        if isinstance(event, PushDone):
            found["before"].append(100 * event.val_before)
        if isinstance(event, RoundDone):
            found["after"].append(100 * event.val_accuracy)
    return found


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--name", default="parts")
    parser.add_argument("--data", default="birds")
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--only", type=int, default=0, help="a single fold, from 1")
    parser.add_argument("--cache", type=Path, default=default_cache())
    return parser.parse_args()


def folds_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The tables of each run that is asked for."""
    for fold in [options.only] if options.only else range(1, options.folds + 1) if options.folds else [0]:
        tables = tables_of(options.settings)
        tables["data"] |= {"data": options.data, "folds": options.folds, "fold": fold}
        tables["training"] = {"mode": "frozen", "patience": _FOREVER, **tables["training"]}
        yield tables


def main() -> None:
    options, splits, found = read_options(), RememberedSplits(), []
    for tables in folds_of(options):
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(config_from(tables), Path(folder, "run"), cache=options.cache, splits=splits)
            found.append(pushes(trainer))
    means = {
        key: [round(mean(all_), 2) for all_ in zip(*(one[key] for one in found), strict=True)]
        for key in ("before", "after")
    }
    told = {"name": options.name, "data": options.data, "settings": options.settings, **means, "folds": found}
    json.dump(told, sys.stdout)
    print()


if __name__ == "__main__":
    main()
