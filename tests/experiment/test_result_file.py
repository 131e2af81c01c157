"""A finished run is taken for the one that is asked for only if every setting was the same, then as now."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import tiny_config

from dprotonet.config import Config
from dprotonet.errors import UserError
from dprotonet.experiment.runs.result_file import RESULT, read_result, write_result


@pytest.fixture
def config(tmp_path: Path) -> Config:
    made = tiny_config(mode="frozen")
    write_result(tmp_path, made, {"accuracy": 0.5})
    return made


def changed(place: Path) -> Any:
    return json.loads((place / RESULT).read_text(encoding="utf-8"))


def keep(place: Path, content: Any) -> None:
    (place / RESULT).write_text(json.dumps(content), encoding="utf-8")


def test_the_same_settings_are_the_same_run(tmp_path: Path, config: Config) -> None:
    found = read_result(tmp_path, config)
    assert found is not None
    assert found["accuracy"] == 0.5
    faster = replace(config, training=replace(config.training, workers=7))
    assert read_result(tmp_path, faster) == found
    assert read_result(tmp_path / "elsewhere", config) is None


def test_another_value_is_another_run(tmp_path: Path, config: Config) -> None:
    other = replace(config, training=replace(config.training, label_smoothing=0.2))
    with pytest.raises(UserError, match=r"was trained with another training\.label_smoothing; name another"):
        read_result(tmp_path, other)


def test_a_run_from_before_a_setting_is_another_run(tmp_path: Path, config: Config) -> None:
    """Even where today's value is the one that is asked for: nobody knows what it did then."""
    content = changed(tmp_path)
    del content["config"]["training"]["part_area"]
    keep(tmp_path, content)
    with pytest.raises(
        UserError, match=r"a version whose settings differ in training\.part_area; name another"
    ):
        read_result(tmp_path, config)


def test_a_run_with_a_setting_that_is_gone_is_another_run(tmp_path: Path, config: Config) -> None:
    content = changed(tmp_path)
    content["config"]["network"]["magic"] = 3
    keep(tmp_path, content)
    with pytest.raises(UserError, match=r"settings differ in network\.magic"):
        read_result(tmp_path, config)


@pytest.mark.parametrize("content", [{}, {"config": 3}, [], "text"])
def test_a_damaged_result_is_named(tmp_path: Path, config: Config, content: Any) -> None:
    keep(tmp_path, content)
    with pytest.raises(UserError, match="is damaged"):
        read_result(tmp_path, config)
