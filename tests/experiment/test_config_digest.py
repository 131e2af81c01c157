"""What names the folder of a run that several tables share."""

from dataclasses import replace

import pytest
from tests.conftest import tiny_config

from dprotonet.config import by_name
from dprotonet.experiment.benchmark import run
from dprotonet.experiment.settings.recipes import final_config


def test_a_setting_of_a_later_version_leaves_names_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    config = final_config(tiny_config())
    before = run.config_digest(config)
    monkeypatch.setattr(run, "by_name", lambda given: {**by_name(given), "training.newer": 0})
    assert run.config_digest(config) == before


def test_what_decides_what_is_learned_is_in_the_name() -> None:
    config = final_config(tiny_config())
    training = config.training
    digest = run.config_digest(config)
    assert run.config_digest(replace(config, training=replace(training, workers=3))) == digest
    assert run.config_digest(replace(config, training=replace(training, epochs=77))) != digest
    assert run.config_digest(replace(config, training=replace(training, seed=5))) != digest
