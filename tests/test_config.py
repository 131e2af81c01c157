import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from dprotonet.cli.parse import parsed
from dprotonet.cli.train import TrainArguments
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
from dprotonet.experiment.trained.versus import class_number


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


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x = " + "[" * 100_000, "recursion depth"),
        ("x = " + "{a=" * 100_000, "recursion depth"),
        (f"[training]\nrate_head = {10**400}", "whole numbers have at most 63"),
        (f"[training]\nepochs = 0x{2**63:x}", "whole numbers have at most 63"),
        (f"[network]\nnetwork = 0x{'f' * 9000}", "whole numbers have at most 63"),
        ("x = " + "9" * 5000, "not valid TOML"),
    ],
    ids=["lists", "tables", "float", "int", "word", "digits"],
)
def test_toml_that_no_config_can_be_made_of(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=match):
        from_tables(Config, read_toml(tmp_path / "config.toml"), where="")


@pytest.mark.parametrize(
    "words",
    [
        *(["--epochs", word] for word in ("٣", "1_0", "３", "3.5", "9" * 30, "")),
        *(["--rate-shaping", word] for word in ("nan", "inf", "1e400", "١.٥", "1_0.5", "0x1")),
    ],
    ids=lambda words: repr(words[-1][:8]),
)
def test_numbers_on_the_command_line_are_digits(words: list[str]) -> None:
    with pytest.raises(UserError, match=r"but takes a (whole |finite )?number"):
        parsed(TrainArguments, words, command="train")


def test_numbers_on_the_command_line() -> None:
    words = ["--epochs", "+7", "--rate-shaping", "1e-3", "--seed", "-1", "--image-weight", "1"]
    found = parsed(TrainArguments, words, command="train")
    assert (found.training.epochs, found.training.rate_shaping, found.training.seed) == (7, 0.001, -1)


@pytest.mark.parametrize("word", ["٣", "²", "1_0", "9" * 30, "-1"])
def test_a_class_by_its_number_is_of_digits(word: str) -> None:
    with pytest.raises(UserError, match="has no class"):
        class_number(word, ["a", "b", "c", "d", "e"], owner="the run")
    assert class_number("3", ["a", "b", "c", "d"], owner="the run") == 3
