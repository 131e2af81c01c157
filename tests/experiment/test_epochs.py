"""How many epochs a run takes, and that it says so where they are not those that were asked for."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import rival_config, shown, tiny_config

from dprotonet.cli.main import main
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.epochs import Epochs
from dprotonet.training.events import EpochDone

CASES = [
    ({"epochs": 2, "warm_epochs": 0, "push_every": 5}, Epochs(2, 5, "a push comes every 5")),
    ({"epochs": 4, "push_every": 2}, Epochs(4, 4, "a push comes every 2")),
    (
        {"epochs": 2, "warm_epochs": 7, "push_every": 5},
        Epochs(2, 10, "7 are warm, and a push comes every 5"),
    ),
]


@pytest.mark.parametrize(("changes", "wanted"), CASES)
def test_epochs_are_rounded_up_to_a_push(changes: dict[str, int], wanted: Epochs) -> None:
    assert Epochs.of(tiny_config(**changes)) == wanted


def test_a_black_box_has_no_pushes() -> None:
    config = rival_config("blackbox")
    short = replace(config, training=replace(config.training, epochs=11, push_every=10))
    assert Epochs.of(short) == Epochs(11, 20, "it is judged every 10")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--epochs 2 --push-every 50 --warm-epochs 0", "--push-every 50 is more than all 2 epochs"),
        ("--epochs 2 --push-every 50 --warm-epochs 7", "give --push-every 7, or --epochs 50"),
        ("--network blackbox --push-every 5000", "--push-every 5000 is more than all"),
        ("--mode auto --out nowhere --epochs 2 --push-every 50 --warm-epochs 0", "give --push-every 2"),
    ],
)
def test_a_push_beyond_the_end_of_training_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It trained fifty epochs instead of two."""
    shown_only = [] if "auto" in words else ["--show-config"]
    assert main(["train", *words.split(), *shown_only]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.strip().count("\n") == 0


def test_a_push_at_the_end_of_training_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(["--epochs", "6", "--push-every", "6", "--warm-epochs", "5"], capsys)
    assert "push_every = 6 " in told


@pytest.mark.parametrize(
    ("epochs", "said"),
    [(1, ["1 epoch asked for, 3 taken: a push comes every 3"]), (3, [])],
)
def test_training_says_how_many_it_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, epochs: int, said: list[str]
) -> None:
    config = tiny_config(mode="frozen", epochs=epochs, warm_epochs=0, push_every=3, last_layer_epochs=0)
    with caplog.at_level(logging.WARNING, logger="dprotonet"):
        events = list(Trainer(config, tmp_path / "run", cache=tmp_path / "cache").run())
    assert [text for text in caplog.messages if "asked for" in text] == said
    assert sum(isinstance(event, EpochDone) for event in events) == 3
