"""`dprotonet train --folds`: runs that never see test images, a summary, and going on after a stop."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import tiny_config

from dprotonet.cli.main import main
from dprotonet.config import Config, DataConfig
from dprotonet.data.base import Sample, Splits
from dprotonet.data.subset import Subset
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import RememberedSplits, build_splits
from dprotonet.experiment.evaluation.evaluation import evaluate_model
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.claim import claimed
from dprotonet.experiment.runs.cross_validation import CrossValidation
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.training.events import EpochDone


def config(folds: int = 3, fold: int = 0) -> Config:
    whole = tiny_config(mode="frozen", epochs=1, warm_epochs=0, push_every=1, last_layer_epochs=1)
    data = DataConfig(species=2, train_per_species=5, val_per_species=1, test_per_species=2, image_size=32)
    network = replace(whole.network, dimension=8, masks=5)
    return Config(replace(data, folds=folds, fold=fold), network, whole.training)


class Forbidden:
    """A test split that nobody may open."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes, self.labels, self.fingerprint = classes, (0,), "forbidden"

    def name(self, index: int) -> str:
        raise AssertionError("test images were asked for")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Sample:
        raise AssertionError("a test image was opened")


class WithoutTest(RememberedSplits):
    """Splits whose test part is forbidden; counts how often the data is asked for."""

    def __call__(self, config: DataConfig, on_progress: object = None) -> Splits:
        found = super().__call__(config)
        return replace(found, test=Forbidden(tuple(found.train.classes)))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> CrossValidation:
    folder = tmp_path_factory.mktemp("folds")
    validation = CrossValidation(config(), folder / "out", cache=folder / "cache", splits=WithoutTest())
    steps = list(validation.run())
    assert [step.fold for step in steps if step.event is None] == [1, 2, 3]
    validation.save()
    return validation


def test_each_fold_is_a_run_of_its_own_on_its_own_validation_images(done: CrossValidation) -> None:
    for fold, result in done.results().items():
        model = Model.load(done.out / f"fold-{fold}")
        assert model.config.data.fold == fold
        again = evaluate_model(model, model.config.data, split="val").predictions.accuracy
        assert again == pytest.approx(result["accuracy"])
        train = build_splits(model.config.data).train
        assert {record.source for record in model.prototypes} <= {
            train.name(index) for index in range(len(train))
        }


def test_the_summary_is_mean_and_deviation_over_folds(done: CrossValidation) -> None:
    content = json.loads((done.out / "folds.json").read_text())
    assert (content["folds"], content["finished"]) == (3, 3)
    found = [item["accuracy"] for item in content["each"]]
    mean = sum(found) / 3
    assert content["accuracy"]["mean"] == pytest.approx(mean)
    assert content["accuracy"]["deviation"] == pytest.approx(
        (sum((value - mean) ** 2 for value in found) / 2) ** 0.5
    )
    assert sum(item["val images"] for item in content["each"]) == 12
    assert all(item["train images"] + item["val images"] == 12 for item in content["each"])
    text = (done.out / "folds.md").read_text()
    assert f"| **all** | 12 | {100 * mean:.1f} ± " in text
    assert "not finished" not in text


def test_features_are_computed_once_for_all_folds(done: CrossValidation) -> None:
    (path,) = done.cache.glob("*.npy")  # maps, with the averages of all levels in their rows
    assert len(np.load(path, mmap_mode="r")) == 12
    trainer = Trainer(config(fold=1), done.out, cache=done.cache)
    model = Model.load(done.out / "fold-1")
    val = build_splits(config(fold=1).data).val
    assert isinstance(val, Subset)
    from accelerate import Accelerator

    from dprotonet.experiment.runs.finished import finished

    views = trainer.views(model.network, val)
    kept = finished(trainer.frozen(views, model.network.encoder.backbone, Accelerator(), 0))
    assert (len(kept), kept.augmentations) == (len(val), 0)
    for index in range(len(val)):
        features = model.network.encoder.backbone(views[index, 0].inputs.unsqueeze(0))[0]
        assert kept[index, 0].label == val.labels[index]
        assert (kept[index, 0].inputs - features).abs().max() < 0.02 * features.abs().max()


def test_finished_folds_are_skipped_and_stopped_ones_go_on(done: CrossValidation, tmp_path: Path) -> None:
    validation = replace(done, out=tmp_path / "out")
    steps = validation.run()
    for step in steps:
        if step.fold == 2 and isinstance(step.event, EpochDone):
            break
    steps.close()
    assert list(validation.results()) == [1]
    assert "2 of 3 folds are not finished" in _saved(validation)
    weights = (validation.out / "fold-1" / "model.safetensors").stat().st_mtime_ns
    assert {step.fold for step in validation.run() if step.event is not None} == {2, 3}
    assert (validation.out / "fold-1" / "model.safetensors").stat().st_mtime_ns == weights
    accuracy = {fold: result["accuracy"] for fold, result in validation.results().items()}
    assert accuracy == {fold: result["accuracy"] for fold, result in done.results().items()}
    events = RunFolder(validation.out / "fold-2").read_metrics()
    assert len([item for item in events if item["event"] == "PushDone"]) == 1


def _saved(validation: CrossValidation) -> str:
    validation.save()
    return (validation.out / "folds.md").read_text()


def test_a_fold_that_another_process_is_at_is_left_to_it(done: CrossValidation) -> None:
    with claimed(done.out / "fold-2"):
        steps = list(done.run())
    assert [(step.fold, step.taken) for step in steps] == [(1, False), (2, True), (3, False)]


def test_the_command_goes_on_and_prints_the_table(
    done: CrossValidation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--out", str(done.out), "--resume", "--cache", str(done.cache)]) == 0
    assert "| **all** | 12 |" in capsys.readouterr().out
    assert main(["train", "--out", str(done.out), "--resume", "--dimension", "9"]) == 2
    assert "another network.dimension" in capsys.readouterr().err


def test_a_folder_without_folds_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["train", "--out", str(tmp_path), "--folds", "3"]) == 2
    assert "holds no folds" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("folds", "fold", "message"),
    [(1, 0, "--folds is 1"), (-2, 0, "--folds is -2"), (3, 4, "must be 1 to 3"), (0, 2, "needs --folds")],
)
def test_folds_that_cannot_be(folds: int, fold: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_config(config(folds, fold))


def test_a_trainer_wants_one_fold(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not data\.fold"):
        list(Trainer(config(), tmp_path / "run").run())
