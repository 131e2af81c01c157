"""A run from config to folder: complete, resumable, reproducible."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import tiny_config

from dprotonet.config import Config
from dprotonet.errors import UserError
from dprotonet.experiment.evaluation.evaluation import evaluate_model
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer, changed_keys
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.training.events import EpochDone, PushDone


def train(config: Config, out: Path, **options: object) -> None:
    for _ in Trainer(config, out, cache=out.parent / "cache", **options).run():  # type: ignore[arg-type]
        pass


def without_seconds(run: Path) -> list[dict]:
    return [{k: v for k, v in item.items() if k != "seconds"} for item in RunFolder(run).read_metrics()]


@pytest.mark.parametrize("mode", ["joint", "frozen"])
@pytest.mark.parametrize("moment", ["mid epoch", "after push"])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, mode: str, moment: str) -> None:
    config = tiny_config(mode=mode)
    train(config, tmp_path / "whole")
    events = Trainer(config, tmp_path / "killed", cache=tmp_path / "cache").run()
    for event in events:
        third = isinstance(event, EpochDone) and event.epoch == 3
        if third if moment == "mid epoch" else isinstance(event, PushDone):
            break
    if moment == "mid epoch":
        next(events)  # into the next epoch, whose work is lost
    events.close()
    train(config, tmp_path / "killed", resume=True)
    whole, killed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == killed.keys()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert without_seconds(tmp_path / "whole") == without_seconds(tmp_path / "killed")


def test_the_folder_is_complete(run_folder: Path) -> None:
    names = {"config.toml", "environment.json", "metrics.jsonl", "model.safetensors", "prototypes.json"}
    assert names <= {path.name for path in run_folder.iterdir()}
    content = json.loads((run_folder / "prototypes.json").read_text())
    assert len(content["prototypes"]) == 8
    for item in content["prototypes"]:
        assert (run_folder / item["image"]).is_file()
        assert item["source"].startswith("birds/train/")
        assert item["views"] == 3
        assert item["distance"] >= 0
    assert not list(run_folder.rglob("*.tmp"))


def test_prototypes_name_images_of_their_class(run_folder: Path) -> None:
    run = RunFolder(run_folder)
    classes, records = run.read_prototypes()
    assert all(record.index % len(classes) == classes.index(record.class_name) for record in records)


def test_the_kept_model_is_the_best_on_validation_data(run_folder: Path) -> None:
    """What was saved, evaluated anew on the validation split, has the best accuracy of all rounds."""
    rounds = [item for item in RunFolder(run_folder).read_metrics() if item["event"] == "RoundDone"]
    model = Model.load(run_folder)
    again = evaluate_model(model, model.config.data, split="val").predictions.accuracy
    assert again == pytest.approx(max(item["val_accuracy"] for item in rounds))


def test_pushes_log_accuracy_before_and_after(run_folder: Path) -> None:
    pushes = [item for item in RunFolder(run_folder).read_metrics() if item["event"] == "PushDone"]
    assert len(pushes) == 2
    assert all({"val_before", "val_after", "collapsed", "views"} <= item.keys() for item in pushes)


def test_an_occupied_folder_is_not_touched(run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not empty.*--resume"):
        train(tiny_config(), run_folder)
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UserError, match="will not be overwritten"):
        train(tiny_config(), tmp_path, overwrite=True)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_a_mistake_leaves_no_folder_behind(tmp_path: Path) -> None:
    wrong = replace(tiny_config(), data=replace(tiny_config().data, data="folder:/nowhere"))
    with pytest.raises(UserError, match="nowhere"):
        train(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_stages_that_cannot_be_frozen_leave_no_folder_behind(tmp_path: Path) -> None:
    """It stood, half made, and was in the way of the corrected command."""
    config = tiny_config(mode="joint", frozen_stages=9)
    with pytest.raises(UserError, match="--frozen-stages is 9"):
        list(Trainer(config, tmp_path / "run", cache=tmp_path / "cache").run())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"class_weights": "balanced", "sampling": "balanced"}, "together would favour rare classes"),
        ({"frozen_stages": 2, "augmentations": 0}, "--frozen-stages needs --augmentations 1"),
    ],
)
def test_settings_that_do_not_go_together(training: dict[str, Any], words: str) -> None:
    tables = {"network": {"network": "pip-net"}, "training": {"mode": "joint", **training}}
    with pytest.raises(UserError, match=words):
        check_config(config_from(tables))


def test_fewer_images_than_prototypes_is_an_error(tmp_path: Path) -> None:
    config = tiny_config()
    greedy = replace(config, network=replace(config.network, prototypes_per_class=7))
    with pytest.raises(UserError, match="6 training images, fewer than its 7 prototypes"):
        train(greedy, tmp_path / "run")


@pytest.mark.parametrize(
    ("per_species", "fold", "warned"), [(2, 0, True), (3, 0, False), (2, 1, True), (2, 2, False)]
)
def test_few_validation_images_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, per_species: int, fold: int, warned: bool
) -> None:
    """Eight are few, twelve are not; of several folds, which have eight each, the first says it."""
    config = tiny_config()
    data = replace(config.data, val_per_species=per_species, fold=fold, folds=4 if fold else 0)
    next(Trainer(replace(config, data=data), tmp_path / "run").run())
    told = [item.getMessage() for item in caplog.records if "is a lottery" in item.getMessage()]
    assert [words.partition(":")[0] for words in told] == ["only 8 validation images in all"] * warned


def test_what_a_resumed_run_may_change() -> None:
    config = tiny_config()
    assert changed_keys(config, tiny_config(epochs=8, workers=1)) == []
    assert changed_keys(config, replace(config, data=replace(config.data, image_cache="kept"))) == []
    assert changed_keys(config, tiny_config(batch_size=9)) == ["batch_size"]


def test_two_runs_of_different_precision_in_one_process(tmp_path: Path) -> None:
    train(tiny_config(mode="frozen", epochs=2), tmp_path / "full")
    train(tiny_config(mode="frozen", epochs=2, mixed_precision="bf16"), tmp_path / "half")
    assert (tmp_path / "half" / "model.safetensors").is_file()


def test_a_run_that_patience_ended_stays_ended(tmp_path: Path) -> None:
    config = tiny_config(
        mode="frozen", epochs=40, patience=1, push_every=1, warm_epochs=0, last_layer_epochs=0
    )
    train(config, tmp_path / "run")
    before = without_seconds(tmp_path / "run")
    assert before[-1]["stop"]
    assert before[-1]["epoch"] < 40
    train(config, tmp_path / "run", resume=True)
    assert without_seconds(tmp_path / "run") == before


def test_a_kill_between_two_renames_loses_nothing(tmp_path: Path) -> None:
    config = tiny_config(mode="frozen")
    train(config, tmp_path / "run")
    before = without_seconds(tmp_path / "run")
    (tmp_path / "run" / "checkpoint").rename(tmp_path / "run" / "checkpoint.old")
    train(config, tmp_path / "run", resume=True)
    assert without_seconds(tmp_path / "run") == before


def test_resume_notices_other_data_and_other_settings(tmp_path: Path) -> None:
    config = tiny_config(mode="frozen", epochs=2)
    train(config, tmp_path / "run")
    with pytest.raises(UserError, match="cannot change batch_size"):
        train(tiny_config(mode="frozen", epochs=2, batch_size=9), tmp_path / "run", resume=True)
    state = tmp_path / "run" / "checkpoint" / "state.json"
    content = json.loads(state.read_text())
    state.write_text(json.dumps({**content, "extra": {**content["extra"], "data": ["other", "data"]}}))
    with pytest.raises(UserError, match="data changed"):
        train(config, tmp_path / "run", resume=True)
    state.write_text(json.dumps({**content, "position": {**content["position"], "stage": "two"}}))
    with pytest.raises(UserError, match="damaged"):
        train(config, tmp_path / "run", resume=True)


def test_masks_from_a_file_travel_with_the_model(tmp_path: Path) -> None:
    import numpy as np

    file = tmp_path / "masks.npy"
    np.save(file, np.random.default_rng(0).random((5, 1, 2, 2), dtype=np.float32))
    config = tiny_config(mode="frozen", epochs=2)
    network = replace(config.network, mask_style="file", mask_file=str(file))
    train(replace(config, network=network), tmp_path / "run")
    expected = torch.from_numpy(np.load(file))
    file.unlink()
    masks = Model.load(tmp_path / "run").network.encoder.regions.masks
    assert torch.equal(masks, expected)
