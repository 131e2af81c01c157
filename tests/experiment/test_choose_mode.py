"""`--mode auto`: both modes on the same folds, the better one trained, the numbers kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config, DataConfig
from dprotonet.experiment.choose_mode import FOLDS, ModeChoice, ModeTrials, decided, with_mode
from dprotonet.experiment.config_check import check_config
from dprotonet.experiment.recipes import final_config


def config() -> Config:
    whole = tiny_config(epochs=1, warm_epochs=0, push_every=1, last_layer_epochs=1)
    data = DataConfig(species=2, train_per_species=5, val_per_species=1, test_per_species=2, image_size=32)
    return with_mode(Config(data, replace(whole.network, dimension=8, masks=5), whole.training), "auto")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("frozen", "joint", "mode"), [(0.7, 0.8, "joint"), (0.8, 0.7, "frozen"), (0.8, 0.8, "frozen")]
)
def test_the_better_mode_is_taken_and_of_equals_the_cheaper(frozen: float, joint: float, mode: str) -> None:
    choice = ModeChoice({"frozen": frozen, "joint": joint}, {"frozen": [frozen] * 3, "joint": [joint] * 3})
    assert choice.mode == mode
    assert f"{100 * frozen:.1f} %" in choice.told()
    assert f"{100 * joint:.1f} %" in choice.told()


def test_both_modes_are_tried_and_what_was_found_is_not_tried_again(tmp_path: Path) -> None:
    trials = ModeTrials(config(), tmp_path / "run", cache=tmp_path / "cache")
    choice = decided(trials)
    assert {mode: len(found) for mode, found in choice.folds.items()} == {"frozen": FOLDS, "joint": FOLDS}
    assert choice.accuracy["joint"] == pytest.approx(sum(choice.folds["joint"]) / FOLDS)
    steps = list(trials.run())
    assert all(step.step.event is None for step in steps)  # nothing was trained again
    trials.clear()
    assert not trials.place.exists()


def test_the_run_has_the_mode_and_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPROTONET_CACHE", str(tmp_path / "cache"))
    model = dp.train(config(), tmp_path / "run")
    told = json.loads((tmp_path / "run" / "mode.json").read_text(encoding="utf-8"))
    assert model.config.training.mode == told["mode"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "run"]


def test_what_auto_cannot_go_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--show-config"], ["--resume", "--out", str(tmp_path / "none")], ["--folds", "3"], []):
        out = [] if "--out" in words or not words else ["--out", str(tmp_path / "run")]
        assert main(["train", "--mode", "auto", *words, *out]) == 2
        error = capsys.readouterr().err
        assert error.strip().count("\n") == 0
    with pytest.raises(dp.UserError, match="mode auto is decided by"):
        check_config(final_config(config()))
