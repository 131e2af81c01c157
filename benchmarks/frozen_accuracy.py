"""Frozen-mode test accuracy of DProtoNet against the linear probe and the discriminant of the same features.

    python benchmarks/frozen_accuracy.py --data folder:PATH --seeds 0 1 2 --styles spatial uniform

Every choice (epoch, strength of probe and discriminant) is made on validation data; test data is looked at
once, at the end. Prints one JSON object; `val_accuracy` is what a choice between styles may look at.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from dprotonet.cli.progress import describe, stderr_console
from dprotonet.compat import keep_freed_memory
from dprotonet.config import Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.demo import Demo
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.training.evaluation import evaluate
from dprotonet.training.events import EpochDone, RoundDone, StepDone


def dprotonet_accuracy(trainer: Trainer) -> dict[str, Any]:
    rounds, console = [], stderr_console()
    for event in trainer.run():
        if isinstance(event, RoundDone):
            rounds.append(event)
        last = isinstance(event, EpochDone) and event.phase == "last"
        if not isinstance(event, Preparing | StepDone) and not last:
            console.print(describe(event))
    model = Model.load(trainer.out)
    test = build_splits(trainer.config.data).test
    features = Demo(trainer).features(model, test, accelerator=Accelerator())
    accuracy = evaluate(model.network.without_backbone(), features, accelerator=Accelerator()).accuracy
    return {
        "val_accuracy": max(event.val_accuracy for event in rounds),
        "test_accuracy": accuracy,
        "epochs": rounds[-1].epoch,
    }


def baseline_accuracies(trainer: Trainer) -> dict[str, dict[str, Any]]:
    return {
        name: {"val_accuracy": found["val_accuracy"], "test_accuracy": found["accuracy"]}
        for name, found in Demo(trainer).baselines().items()
    }


def main() -> None:
    keep_freed_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="birds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--styles", nargs="+", default=["spatial", "uniform"])
    parser.add_argument("--paper", action="store_true", help="the paper's rates, from random weights")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--augmentations", type=int, default=TrainingConfig().augmentations)
    parser.add_argument("--masks", type=int, default=NetworkConfig().masks)
    parser.add_argument("--contrast", type=float, default=NetworkConfig().mask_contrast)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--allow-leaks", action="store_true")
    options = parser.parse_args()
    views: dict[str, Any] = {"augmentations": options.augmentations, "workers": 2}
    if options.paper:
        views |= {"epochs": 30, "warm_epochs": 5, "push_every": 10, "shaping_start": "random"}
        views |= {"rate_shaping": 3e-3, "rate_prototypes": 3e-3}
    training = TrainingConfig(mode="frozen", **views)
    if options.epochs is not None:
        training = replace(training, epochs=options.epochs)
    base = Config(
        DataConfig(data=options.data, allow_leaks=options.allow_leaks),
        NetworkConfig(masks=options.masks, mask_contrast=options.contrast),
        training,
    )
    rows: dict[str, list[dict[str, Any]]] = {style: [] for style in options.styles}
    with tempfile.TemporaryDirectory() as folder:
        for style in options.styles:
            for seed in options.seeds:
                print(f"== {style}, seed {seed}", file=sys.stderr, flush=True)
                config = replace(
                    base,
                    network=replace(base.network, mask_style=style),
                    training=replace(training, seed=seed),
                )
                trainer = Trainer(config, Path(folder) / f"{style}-{seed}", cache=options.cache)
                rows[style].append({"seed": seed, **dprotonet_accuracy(trainer)})
                print(json.dumps(rows[style][-1]), file=sys.stderr, flush=True)
        baselines = baseline_accuracies(trainer)
    means = {
        style: {
            key: statistics.mean(item[key] for item in items) for key in ("val_accuracy", "test_accuracy")
        }
        for style, items in rows.items()
    }
    print(
        json.dumps(
            {
                "benchmark": "frozen_accuracy",
                "data": options.data,
                **baselines,
                "mean": means,
                "runs": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
