import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from dprotonet.config import (
    Config,
    DataConfig,
    NetworkConfig,
    TrainingConfig,
    by_name,
    from_tables,
    given_tables,
    read_toml,
    to_tables,
)
from dprotonet.errors import UserError


def test_toml_round_trip() -> None:
    config = Config(network=NetworkConfig(patch=(2, 3), epsilon=1e-4), training=TrainingConfig(mode="frozen"))
    assert from_tables(Config, tomllib.loads(tomli_w.dumps(to_tables(config))), where="") == config


def test_missing_keys_take_their_default() -> None:
    assert from_tables(Config, {"network": {"masks": 9}}, where="").network == NetworkConfig(masks=9)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"netwrok": {}}, "unknown key 'netwrok'.*did you mean 'network'"),
        ({"network": {"mask": 9}}, "unknown key 'mask' in network.*did you mean 'masks'.*known keys"),
        ({"network": {"masks": "many"}}, "network.masks must be int, not 'many'"),
        ({"network": {"masks": True}}, "network.masks must be int"),
        ({"network": 3}, "network must be a table"),
        ({"network": {"mask_style": "wavy"}}, "choose one of spatial, uniform, file"),
        ({"network": {"patch": [1]}}, "list of 2"),
        ({"network": {"channels": True}}, "choose one of 1, 3"),
        ({"network": {"channels": 3.0}}, "choose one of 1, 3"),
        ({"training": {"seed": 0.5}}, "training.seed must be int"),
    ],
)
def test_mistakes_are_named(tables: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_tables(Config, tables, where="")


def test_whole_numbers_are_fine_for_rates() -> None:
    assert from_tables(Config, {"training": {"cluster": 1}}, where="").training.cluster == 1.0


def test_files_that_are_no_toml(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(UserError, match="not valid TOML"):
        read_toml(tmp_path / "bad.toml")


def test_field_names_are_unique_over_sections() -> None:
    """The command line offers them without their section."""
    names = [name.rpartition(".")[2] for name in by_name(Config())]
    assert len(names) == len(set(names))


def test_what_is_given_is_told_from_what_is_implied() -> None:
    """Also where it equals the default, and after a change of something else."""
    training = replace(TrainingConfig(epochs=30), seed=1)
    assert given_tables(Config(training=training))["training"] == {"epochs": 30, "seed": 1}
    assert TrainingConfig() == TrainingConfig(epochs=30)
    assert given_tables(Config(data=DataConfig(allow_leaks=True)))["data"] == {"allow_leaks": True}


def test_stored_values_are_plain() -> None:
    values = by_name(Config()).values()
    assert {type(value) for value in values} <= {str, int, float, bool, list}
