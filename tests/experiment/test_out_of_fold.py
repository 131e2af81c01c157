"""Calibration on training images that the answering network has not seen."""

import json
import shutil
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config
from dprotonet.data.base import Splits
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.runs import out_of_fold
from dprotonet.experiment.runs.calibration import FILE, Calibration, adjusted, calibration_of
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.out_of_fold import OutOfFold, fold_calibration, trained_and_calibrated
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.training.evaluation import Predictions


@pytest.fixture
def copied(run_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint"))
    return tmp_path / "run"


def trainer_of(run: Path) -> Trainer:
    return Trainer(RunFolder(run).read_config(), run, cache=run.parent / "cache")


def test_no_image_is_answered_by_a_network_that_learned_it(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted trainer that answers the images it was not given: every place is filled, by others."""
    splits = build_splits(RunFolder(run_folder).read_config().data)
    seen = []

    def planted(_: Trainer, learned: Splits, asked: Any) -> Generator[Preparing, None, Predictions]:
        yield Preparing("planted", 1, 1)
        inside = {learned.train.name(index) for index in range(len(learned.train))}
        outside = [asked.name(index) for index in range(len(asked))]
        assert not inside & set(outside)
        assert len(inside) + len(outside) == len(splits.train)
        assert learned.val is splits.val  # which chooses the round
        assert set(learned.train.labels) == set(splits.train.labels)
        seen.extend(outside)
        logits = torch.nn.functional.one_hot(torch.tensor(asked.labels), len(asked.classes)).float()
        return Predictions(logits, torch.tensor(asked.labels))

    monkeypatch.setattr(out_of_fold, "kept_answers", planted)
    found = finished(OutOfFold(trainer_of(run_folder), 3).run(splits))
    assert sorted(seen) == sorted(splits.train.name(index) for index in range(len(splits.train)))
    assert found.labels.tolist() == list(splits.train.labels)
    assert found.logits.argmax(1).tolist() == list(splits.train.labels)  # in the order of the split


def test_the_command_calibrates_on_folds(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (copied / FILE).read_text()
    weights = (copied / "model.safetensors").read_bytes()
    assert (
        main(["calibrate", str(copied), "--folds", "2", "--cache", str(copied.parent / "c"), "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    train = build_splits(RunFolder(copied).read_config().data).train
    assert told["images"] == len(train)
    assert told["source"] == "training images, by 2 networks that had not seen them"
    assert "scores" not in told
    known = dp.load(copied).calibration  # and it belongs to the weights
    assert known is not None
    assert len(known.scores) == len(train)
    assert (copied / FILE).read_text() != before
    assert (copied / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--folds", "1"], "at least two"),
        (["--folds", "50"], "training images of each class, and one class has"),
        (["--folds", "2", "--split", "test"], "leave out --data and --split"),
    ],
)
def test_folds_that_cannot_be_are_refused(
    copied: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    before = (copied / FILE).read_text()
    assert main(["calibrate", str(copied), *words]) == 2
    assert message in capsys.readouterr().err
    assert (copied / FILE).read_text() == before


@pytest.mark.parametrize(
    ("mode", "few", "wanted"), [("frozen", 10**6, 2), ("frozen", 1, 0), ("joint", 10**6, 0)]
)
def test_folds_are_taken_by_themselves_where_they_are_cheap_and_validation_is_small(
    copied: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, few: int, wanted: int
) -> None:
    asked = []

    def counting(self: OutOfFold, splits: Splits) -> Generator[Any, None, Predictions]:
        asked.append(self.folds)
        yield from ()
        labels = torch.tensor(splits.train.labels)
        return Predictions(torch.randn(len(labels), len(splits.train.classes)), labels)

    monkeypatch.setattr(OutOfFold, "run", counting)
    monkeypatch.setattr(out_of_fold, "FEW", few)
    monkeypatch.setattr(out_of_fold, "FOLDS", 2)
    config = RunFolder(copied).read_config()
    RunFolder(copied).write_config(replace(config, training=replace(config.training, mode=mode)), {})
    found = finished(fold_calibration(copied, cache=copied.parent / "cache"))
    assert (found is None) == (wanted == 0)
    assert asked == [wanted] * (wanted > 0)


def test_training_ends_with_it_and_resuming_does_not_repeat_it(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def planted(run: Path, **_: Any) -> Generator[Preparing, None, Calibration]:
        yield Preparing("calibrating", 1, 1)
        calls.append(run)
        known = Calibration.read(run)
        assert known is not None
        return replace(known, temperature=7.0, source="training images")

    monkeypatch.setattr(out_of_fold, "fold_calibration", planted)
    monkeypatch.setattr(Trainer, "run", lambda self: iter(()))
    trainer = trainer_of(copied)
    finished(trained_and_calibrated(trainer, "validation"))
    assert not calls
    for _ in range(2):
        finished(trained_and_calibrated(trainer))
    assert calls == [copied]
    assert dp.load(copied).calibration.temperature == 7.0  # type: ignore[union-attr]


def test_a_change_of_prototypes_changes_the_temperature_by_what_it_did_to_validation(
    model_logits: Any,
) -> None:
    """Logits that a change makes twice as large ask for twice the temperature, whatever their luck."""
    logits, labels = model_logits
    of_folds = Calibration(1.3, 1e-4, 5000, "old", "training images, by 5 networks", [0.5])
    changed = adjusted(of_folds, logits, 2 * logits, labels, torch.nn.Linear(2, 2))
    assert changed.temperature == pytest.approx(2.6, rel=0.01)
    assert (changed.images, changed.floor, len(changed.scores)) == (5000, 1e-4, len(labels))
    assert changed.weights != "old"
    of_validation = calibration_of(logits, labels, "old")
    again = adjusted(of_validation, logits, 2 * logits, labels, torch.nn.Linear(2, 2))
    assert again.temperature == pytest.approx(2 * of_validation.temperature, rel=0.01)


@pytest.fixture
def model_logits() -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(200, 3, generator=random)
    return logits, torch.multinomial(logits.softmax(1), 1, generator=random).flatten()


def test_dp_train_offers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def planted(trainer: Trainer, images: str) -> Generator[Any, None, None]:
        asked.append(images)
        yield from trainer.run()

    monkeypatch.setattr("dprotonet.experiment.api.trained_and_calibrated", planted)
    config: Config = tiny_config()
    dp.train(config, tmp_path / "run", calibration="validation", progress=False)
    assert asked == ["validation"]
