"""The run that several targets damage: trained once a campaign, in seconds, with all files a run can have."""

import os
import shutil
from pathlib import Path

import torch
from tests.conftest import tiny_config

from dprotonet.experiment.explaining.row_marks import measured_limit
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.facts import stored_facts
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.trained.part_names import PartName, write_part_names


def tiny_run(place: Path) -> Path:
    """A finished run beside the folder of a target; nobody may change it."""
    torch.set_num_threads(1)
    run = place.parent / "material" / "run"
    if not (run / "ready").is_file():
        shutil.rmtree(run, ignore_errors=True)
        _train(run)
        (run / "ready").touch()
    return run


def _train(run: Path) -> None:
    config = tiny_config(mode="frozen", epochs=2, last_layer_epochs=1, augmentations=1, push_images=2)
    for _ in Trainer(config, run, cache=run.parent / "cache").run():
        pass
    model = Model.load(run)
    splits = model.splits()
    stored_facts(model, splits.train)
    measured_limit(model, splits.val).write(run)
    write_part_names(run, {0: PartName("beak", given=True), 1: PartName("A")}, model.prototypes)
    _evaluate(run)
    os.sync()


def _evaluate(run: Path) -> None:
    """evaluation/test.json, as the command writes it."""
    from dprotonet.cli.main import main

    if main(["evaluate", str(run)]):
        raise RuntimeError("evaluate failed")
