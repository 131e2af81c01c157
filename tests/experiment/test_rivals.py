"""Rivals by their word: whose values count, and a whole run of each."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
import torch
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config, NetworkConfig, TrainingConfig, from_tables, to_tables
from dprotonet.data.birds import Birds
from dprotonet.experiment.build import check_config
from dprotonet.experiment.rivals import PRESETS, rival_config
from dprotonet.experiment.trainer import Trainer

RIVALS = tuple(name for name in PRESETS if name != "dprotonet")


def tiny_rival(name: str, **training: object) -> Config:
    """The tiny run with the rival's own values."""
    config = rival_config(name)
    small = tiny_config(push_images=config.training.push_images, **training)
    sizes = {key: getattr(small.network, key) for key in ("backbone", "dimension", "prototypes_per_class")}
    epochs = {
        key: getattr(small.training, key)
        for key in ("mode", "epochs", "warm_epochs", "push_every", "batch_size", "augmentations", "patience")
    }
    return Config(small.data, replace(config.network, **sizes), replace(config.training, **epochs))


def test_no_word_is_dprotonet() -> None:
    assert rival_config() == rival_config("dprotonet") == Config()


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_differs_and_is_valid(name: str) -> None:
    config = rival_config(name)
    check_config(config)
    assert config.network.network == name
    assert (
        replace(config.network, network="dprotonet") != NetworkConfig() or config.training != TrainingConfig()
    )


@pytest.mark.parametrize("name", RIVALS)
def test_a_stored_config_comes_back_as_it_was(name: str) -> None:
    config = rival_config(name, {"training": {"push_images": 7}})
    tables = tomllib.loads(tomli_w.dumps(to_tables(config)))
    assert from_tables(Config, tables, where="") == config == rival_config(None, tables)


def test_what_the_user_says_wins() -> None:
    tables = {
        "network": {"epsilon": 1e-12, "network": "gen-protopnet"},
        "training": {"head_learns": "always"},
    }
    config = rival_config(None, tables)
    assert (config.network.epsilon, config.training.head_learns) == (1e-12, "always")
    assert (config.network.regions, config.network.patch) == ("patches", (2, 2))
    assert rival_config("protopnet", tables).network.regions == "points"


@pytest.mark.parametrize(
    "tables", [{"network": 3}, {"network": {"network": "protonet"}}, {"network": {"network": 1}}]
)
def test_mistakes_are_named(tables: dict) -> None:
    with pytest.raises(dp.UserError, match="network"):
        rival_config(None, tables)


@pytest.mark.parametrize("name", RIVALS)
def test_a_name_without_its_values_is_refused(name: str) -> None:
    with pytest.raises(dp.UserError, match=f"rival_config\\('{name}'\\)"):
        check_config(Config(network=NetworkConfig(network=name)))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["joint", "frozen"])
@pytest.mark.parametrize("name", RIVALS)
def test_train_save_load_predict(name: str, mode: str, tmp_path: Path) -> None:
    trainer = Trainer(tiny_rival(name, mode=mode), tmp_path / "run", cache=tmp_path / "cache")
    for _ in trainer.run():
        pass
    model = dp.load(tmp_path / "run")
    assert model.config.network.network == name
    birds = Birds(species=4, per_species=2, split="test", seed=0, size=64)
    images = [birds[index].image for index in range(4)]
    model.save_pretrained(tmp_path / "copy")
    first, second = (
        model.predict_many(images),
        dp.Model.from_pretrained(tmp_path / "copy").predict_many(images),
    )
    assert first == second
    with torch.no_grad():
        logits = model.network(model.inputs(images)).double()
    for row, prediction in enumerate(first):
        assert prediction.logit == pytest.approx(logits[row, prediction.label].item(), rel=1e-4, abs=1e-4)
        assert prediction.label == int(logits[row].argmax())


def test_the_command_line(tmp_path: Path) -> None:
    file, out = tmp_path / "rival.toml", tmp_path / "run"
    file.write_text(
        tomli_w.dumps({name: values for name, values in to_tables(tiny_config()).items() if name == "data"})
    )
    words = (
        "--backbone timm:test_resnet:none --dimension 8 --prototypes-per-class 2 --epochs 2 --push-every 2"
    )
    words += " --last-layer-epochs 1 --warm-epochs 1 --network protopnet --epsilon 1e-3"
    assert main(["train", "--out", str(out), "--config", str(file), *words.split()]) == 0
    config = dp.load(out).config
    assert (config.network.network, config.network.regions, config.network.epsilon) == (
        "protopnet",
        "points",
        1e-3,
    )
    assert (config.training.push_images, config.data.species) == (1, 4)


def test_the_demo_is_dprotonets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--network", "protopnet", "--out", str(tmp_path / "run")]) == 2
    assert "dprotonet train --network protopnet" in capsys.readouterr().err
