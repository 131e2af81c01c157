"""`--mode auto`: both modes on the same folds, the better one trained, the numbers kept."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest
import tomli_w
import torch
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config, DataConfig, given_tables
from dprotonet.experiment.runs.choose_mode import FOLDS, ModeChoice, ModeTrials, with_mode
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.training.engine import Engine


def config() -> Config:
    whole = tiny_config(epochs=1, warm_epochs=0, push_every=1, last_layer_epochs=1)
    data = DataConfig(species=2, train_per_species=5, val_per_species=1, test_per_species=2, image_size=32)
    return with_mode(Config(data, replace(whole.network, dimension=8, masks=5), whole.training), "auto")  # type: ignore[arg-type]


def answers(*right: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Two classes in turn; of each fold a word of 1 (right) and 0 (wrong)."""
    found = []
    for word in right:
        labels = torch.arange(len(word)) % 2
        found.append((labels, labels ^ torch.tensor([digit == "0" for digit in word]).long()))
    return found


def chosen(frozen: list[str], joint: list[str], *, balanced: bool = False) -> ModeChoice:
    return ModeChoice.of({"frozen": answers(*frozen), "joint": answers(*joint)}, balanced=balanced)


@pytest.mark.parametrize(
    ("frozen", "joint", "mode"),
    [
        (["1100", "1000"], ["1111", "1100"], "joint"),  # three images gained, none lost
        (["1111", "1100"], ["1100", "1000"], "frozen"),
        (["1100", "1000"], ["1100", "1000"], "frozen"),
        (["1100", "1010"], ["1010", "1101"], "frozen"),  # two lost, three gained: less than the noise
    ],
)
def test_joint_mode_has_to_lead_by_more_than_its_standard_error(
    frozen: list[str], joint: list[str], mode: str
) -> None:
    choice = chosen(frozen, joint)
    differences = [int(b) - int(a) for a, b in zip("".join(frozen), "".join(joint), strict=True)]
    assert choice.lead == pytest.approx(fmean(differences))
    assert choice.standard_error == pytest.approx(stdev(differences) / len(differences) ** 0.5)
    assert choice.mode == mode
    assert choice.folds["joint"] == [word.count("1") / len(word) for word in joint]
    told = choice.told()
    for share in (*choice.accuracy.values(), choice.standard_error):
        assert f"{100 * share:.1f}" in told
    assert f"{100 * choice.lead:+.1f} points, {'more' if mode == 'joint' else 'not more'} than" in told


def test_where_classes_count_alike_they_do_in_the_choice() -> None:
    """One image of the rare class lost weighs more than two of the common one gained."""
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1])
    frozen, joint = labels.clone(), labels.clone()
    frozen[:2], joint[7] = 1, 0
    found = {"frozen": [(labels, frozen)], "joint": [(labels, joint)]}
    plain, balanced = (ModeChoice.of(found, balanced=kind) for kind in (False, True))  # type: ignore[arg-type]
    assert plain.lead == pytest.approx(1 / 8)
    assert balanced.accuracy == pytest.approx({"frozen": (5 / 7 + 1) / 2, "joint": (1 + 0) / 2})
    assert balanced.folds["frozen"] == pytest.approx([balanced.accuracy["frozen"]])
    assert balanced.lead == pytest.approx(balanced.accuracy["joint"] - balanced.accuracy["frozen"])
    assert "balanced accuracy" in balanced.told()


def test_both_modes_are_tried_and_what_was_found_is_not_tried_again(tmp_path: Path) -> None:
    trials = ModeTrials(config(), tmp_path / "run", cache=tmp_path / "cache")
    choice = finished(trials.run())
    assert {mode: len(found) for mode, found in choice.folds.items()} == {"frozen": FOLDS, "joint": FOLDS}
    ends = [found["accuracy at the end"] for found in trials._trial("joint").results().values()]
    assert choice.folds["joint"] == pytest.approx(ends)
    assert choice.images == 12  # every training and validation image once
    steps = list(trials.run())
    assert all(step.step.event is None for step in steps)  # nothing was trained again


def test_the_run_has_the_mode_and_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPROTONET_CACHE", str(tmp_path / "cache"))
    model = dp.train(config(), tmp_path / "run")
    told = json.loads((tmp_path / "run" / "mode.json").read_text(encoding="utf-8"))
    assert model.config.training.mode == told["mode"]
    assert {"rule", "lead", "standard_error", "accuracy", "folds"} <= told.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "run"]


def test_a_run_that_is_stopped_has_its_numbers_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were written at the end, by the command that chose: a resumed run had none and left its trials."""
    monkeypatch.setenv("DPROTONET_CACHE", str(tmp_path / "cache"))

    def stopped(self: Engine, stages: object) -> Iterator[None]:
        if self.settings.patience == 77:
            raise KeyboardInterrupt
        yield from whole(self, stages)  # type: ignore[arg-type,misc]

    asked, whole = config(), Engine.run
    out = tmp_path / "run"
    trials = ModeTrials(asked, out, cache=tmp_path / "cache" / "features")
    choice = finished(trials.run())
    monkeypatch.setattr(Engine, "run", stopped)
    patient = replace(asked, training=replace(asked.training, patience=77))
    trainer = Trainer(with_mode(patient, choice.mode), out, on_open=lambda: trials.settle(choice))
    with pytest.raises(KeyboardInterrupt):
        list(trainer.run())
    assert json.loads((out / "mode.json").read_text(encoding="utf-8"))["mode"] == choice.mode
    assert not trials.place.exists()
    monkeypatch.setattr(Engine, "run", whole)
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert (out / "mode.json").is_file()
    assert (out / "model.safetensors").is_file()


def test_what_one_mode_cannot_do_is_told_before_any_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(tomli_w.dumps(given_tables(config())), encoding="utf-8")
    words = ["train", "--config", str(file), "--out", str(tmp_path / "run"), "--cache", str(tmp_path)]
    assert main([*words, "--frozen-stages", "9"]) == 2
    assert "--frozen-stages is 9" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]
    assert main([*words, "--train-per-species", "1", "--prototypes-per-class", "1"]) == 2
    error = capsys.readouterr().err
    assert "--mode auto makes 3 folds" in error
    assert "--folds" not in error  # which auto does not take
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]
    assert main([*words, "--parts", "3"]) == 2
    assert "--parts has no effect" in capsys.readouterr().err


def test_what_auto_cannot_go_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--show-config"], ["--resume", "--out", str(tmp_path / "none")], ["--folds", "3"], []):
        out = [] if "--out" in words or not words else ["--out", str(tmp_path / "run")]
        assert main(["train", "--mode", "auto", *words, *out]) == 2
        error = capsys.readouterr().err
        assert error.strip().count("\n") == 0
    with pytest.raises(dp.UserError, match="mode auto is decided by"):
        check_config(final_config(config()))
