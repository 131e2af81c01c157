"""How many epochs a run takes, and that it says so where they are not those that were asked for."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import rival_config, tiny_config

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
