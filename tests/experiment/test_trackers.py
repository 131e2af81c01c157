"""`--log`: the curves of a run reach the trackers, and mistakes are named before any work is done."""

import logging
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from accelerate import tracking
from accelerate.tracking import GeneralTracker
from tests.conftest import tiny_config
from tests.experiment.test_choose_mode import config as auto_config

from dprotonet.cli.main import main
from dprotonet.config import TrainingConfig
from dprotonet.errors import UserError
from dprotonet.experiment.build.trackers import tracker_names
from dprotonet.experiment.runs.choose_mode import ModeTrials
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer

TINY = [
    *["train", "--species", "2", "--train-per-species", "6", "--val-per-species", "4", "--image-size", "64"],
    *["--epochs", "2", "--warm-epochs", "0", "--push-every", "1", "--last-layer-epochs", "2"],
    *["--backbone", "timm:test_resnet:none", "--batch-size", "4", "--masks", "12", "--dimension", "16"],
    *["--prototypes-per-class", "2", "--push-images", "2"],
]


@pytest.mark.parametrize("words", [["--log", "tensorboard"], ["--tensorboard"]])
def test_tensorboard_has_the_curves_of_the_run(tmp_path: Path, words: list[str]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main([*TINY, "--out", str(tmp_path / "run"), *words]) == 0
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "dprotonet")).Reload()
    epochs = [item for item in RunFolder(tmp_path / "run").read_metrics() if item["event"] == "EpochDone"]
    for phase, tag in (("joint", "EpochDone"), ("last", "EpochDone.last")):
        own = [item for item in epochs if item["phase"] == phase]
        curve = board.Scalars(f"{tag}/val_accuracy")
        assert [point.value for point in curve] == pytest.approx([item["val_accuracy"] for item in own])
        assert [point.step for point in curve] == [item["steps"] for item in own]
    assert len(board.Scalars("PushDone/val_after")) == 2


class Remembers(GeneralTracker):
    """A tracker as accelerate's are, that only remembers."""

    requires_logging_directory = False
    name = "fake"
    seen: ClassVar[dict[str, Any]] = {}

    def __init__(self, project: str, **settings: Any) -> None:
        super().__init__()
        self.mine: dict[str, Any] = {"project": project, "settings": settings, "log": [], "open": True}
        self.seen[self.name] = self.mine

    @property
    def tracker(self) -> object:
        return self

    def store_init_configuration(self, values: dict) -> None:
        self.mine["config"] = values

    def log(self, values: dict, step: int | None = None, **_: Any) -> None:
        self.mine["log"].append((step, values))

    def finish(self) -> None:
        self.mine["open"] = False


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    Remembers.seen.clear()
    for name in ("mlflow", "wandb"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, name, type(name, (Remembers,), {"name": name}))
    available = [tracking.LoggerType.MLFLOW, tracking.LoggerType.WANDB]
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: available)
    return Remembers.seen


def test_mlflow_and_wandb_get_settings_and_curves(tmp_path: Path, fakes: dict[str, Any]) -> None:
    for _ in Trainer(tiny_config(mode="joint", log="mlflow,wandb"), tmp_path / "run").run():
        pass
    assert set(fakes) == {"mlflow", "wandb"}
    assert fakes["mlflow"]["settings"] == {"run_name": "run"}
    assert fakes["wandb"]["settings"] == {"name": "run", "dir": str(tmp_path / "run")}
    records = RunFolder(tmp_path / "run").read_metrics()
    for seen in fakes.values():
        assert seen["project"] == "dprotonet"
        assert seen["config"]["training.batch_size"] == 8
        assert all(isinstance(value, bool | str | int | float) for value in seen["config"].values())
        assert [step for step, _ in seen["log"]] == sorted(step for step, _ in seen["log"])
        assert len(seen["log"]) == len(records)
        assert seen["log"][0][1]["EpochDone/loss"] == records[0]["loss"]
        assert not seen["open"]


def test_trials_of_a_mode_are_sent_to_no_tracker(tmp_path: Path, fakes: dict[str, Any]) -> None:
    """Six short runs of folds stood among the curves of the run itself."""
    asked = auto_config()
    logged = replace(asked, training=replace(asked.training, log="wandb"))
    finished(ModeTrials(logged, tmp_path / "run", cache=tmp_path / "cache").run())
    assert not fakes


def test_a_tracker_that_is_missing_is_named_before_the_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dprotonet.experiment.build.trackers.find_spec", lambda name: None)
    asked = auto_config()
    logged = replace(asked, training=replace(asked.training, log="wandb"))
    with pytest.raises(UserError, match="--log wandb needs an extra"):
        finished(ModeTrials(logged, tmp_path / "run", cache=tmp_path / "cache").run())
    assert list(tmp_path.iterdir()) == []


def test_trackers_are_closed_when_training_stops(tmp_path: Path, fakes: dict[str, Any]) -> None:
    events = Trainer(tiny_config(mode="joint", log="wandb"), tmp_path / "run").run()
    next(event for event in events)
    assert fakes["wandb"]["open"]
    events.close()
    assert not fakes["wandb"]["open"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mlflow", "--log mlflow needs an extra: pip install 'dprotonet[mlflow]'"),
        ("tensorboard, wandb", "pip install 'dprotonet[wandb]'"),
        ("tensorbord", "unknown tracker; did you mean 'tensorboard'? known: tensorboard, mlflow, wandb"),
    ],
)
def test_mistakes_are_named_before_any_work(
    tmp_path: Path,
    given: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "dprotonet.experiment.build.trackers.find_spec",
        lambda name: None if name in ("mlflow", "wandb") else 1,
    )
    assert main([*TINY, "--out", str(tmp_path / "run"), "--log", given]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.toml").exists()


def test_names_are_taken_once() -> None:
    assert tracker_names(TrainingConfig()) == ()
    config = TrainingConfig(log=" wandb,tensorboard,wandb ", tensorboard=True)
    assert tracker_names(config) == ("wandb", "tensorboard")
    with pytest.raises(UserError, match="unknown tracker"):
        tracker_names(TrainingConfig(log="all"))


@pytest.mark.parametrize(("counts", "told"), [((9, 3), True), ((8, 3), False)])
def test_imbalance_is_told_once_with_the_options(
    tmp_path: Path, counts: tuple[int, int], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    from PIL import Image

    for split, numbers in (("train", counts), ("val", (5, 5)), ("test", (2, 2))):
        for name, count in zip(("common", "rare"), numbers, strict=True):
            folder = tmp_path / "data" / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                colour = (40 * (split == "val") + 20 * (split == "test") + number, number * 9, len(name) * 30)
                Image.new("RGB", (64, 64), colour).save(folder / f"{number}.png")
    words = [*TINY, "--data", f"folder:{tmp_path / 'data'}", "--allow-leaks"]
    place = words.index("--species")
    words = words[:place] + words[place + 6 :]
    with caplog.at_level(logging.WARNING, logger="dprotonet"):
        assert main([*words, "--out", str(tmp_path / "run")]) == 0
    said = [record.getMessage() for record in caplog.records if "balanced" in record.getMessage()]
    assert len(said) == told
    if told:
        assert "class 'common' has 9 training images, 'rare' only 3" in said[0]
        caplog.clear()
        options = [["--class-weights", "balanced"], ["--sampling", "balanced"]]
        for number, option in enumerate(options):
            assert main([*words, "--out", str(tmp_path / f"run{number}"), *option]) == 0
        assert not [record for record in caplog.records if "balanced" in record.getMessage()]
