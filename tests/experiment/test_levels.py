"""Runs on joined levels: fitted once before training, the same after a stop, shared by folds and seeds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config
from dprotonet.encoder.levels import JoinedLevels
from dprotonet.errors import UserError
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.training.events import EpochDone, RoundDone


def on_levels(levels: int = 2, **changes: object) -> Config:
    config = tiny_config(**changes)
    network = replace(config.network, levels=levels, level_channels=12, regions="points", similarity="cosine")
    return replace(config, network=network)


def fits(config: Config, out: Path, **options: object) -> list[tuple[int, int]]:
    """Train to the end; what was heard of fitting."""
    events = list(Trainer(config, out, cache=out.parent / "cache", **options).run())  # type: ignore[arg-type]
    return [
        (event.done, event.total)
        for event in events
        if isinstance(event, Preparing) and event.what == "levels"
    ]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


@pytest.mark.parametrize("mode", ["joint", "frozen"])
@pytest.mark.parametrize("moment", [EpochDone, RoundDone])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, mode: str, moment: type) -> None:
    config = on_levels(mode=mode)
    assert fits(config, tmp_path / "whole") == [(24, 24)]
    events = Trainer(config, tmp_path / "killed", cache=tmp_path / "cache").run()
    while not isinstance(next(events), moment):
        pass
    events.close()
    fits(config, tmp_path / "killed", resume=True)
    whole, killed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert "encoder.backbone.projections.1.weight" in whole
    assert whole.keys() == killed.keys()
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_a_run_that_goes_on_takes_the_projection_of_its_own_model(tmp_path: Path) -> None:
    """Not one fitted anew, which on another machine could differ from what prototypes were learned on."""
    fits(on_levels(mode="frozen"), tmp_path / "run")
    for path in (tmp_path / "cache").glob("levels-*"):
        path.unlink()
    assert fits(on_levels(mode="frozen", epochs=6), tmp_path / "run", resume=True) == []


def test_runs_on_the_same_images_share_one_fit(tmp_path: Path) -> None:
    assert fits(on_levels(mode="frozen"), tmp_path / "first")
    assert not fits(on_levels(mode="frozen", push_images=1), tmp_path / "second")
    assert fits(on_levels(mode="frozen", seed=1), tmp_path / "third")  # another backbone: random by the seed


def test_joint_training_moves_the_projection(tmp_path: Path) -> None:
    name = "encoder.backbone.projections.0.weight"
    fits(on_levels(mode="frozen"), tmp_path / "frozen")
    fits(on_levels(mode="joint", rate_backbone=1e-2), tmp_path / "joint")
    assert not torch.equal(weights(tmp_path / "frozen")[name], weights(tmp_path / "joint")[name])


def test_a_loaded_model_has_the_map_it_was_trained_on(tmp_path: Path) -> None:
    fits(on_levels(mode="frozen"), tmp_path / "run")
    model = dp.load(tmp_path / "run")
    backbone = model.network.encoder.backbone
    assert isinstance(backbone, JoinedLevels)
    assert backbone.channels == 12
    kept = weights(tmp_path / "run")["encoder.backbone.projections.0.weight"]
    assert torch.equal(backbone.projections[0].weight, kept)


def test_too_many_levels_leave_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"levels to join, not 9; lower --levels"):
        fits(on_levels(levels=9), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="--levels is 0; it must be at least 1"):
        fits(on_levels(levels=0), tmp_path / "run")


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, size = tmp_path / "run", ["--species", "3", "--train-per-species", "4", "--val-per-species", "2"]
    size += ["--test-per-species", "2", "--image-size", "64", "--epochs", "2", "--push-every", "2"]
    size += [
        "--prototypes-per-class",
        "1",
        "--dimension",
        "8",
        "--last-layer-epochs",
        "1",
        "--augmentations",
        "1",
    ]
    kind = ["--levels", "2", "--regions", "points", "--similarity", "cosine", "--shaping-start", "random"]
    words = ["train", "--data", "birds", "--mode", "frozen", *size, *kind]
    assert main([*words, "--cache", str(tmp_path / "cache"), "--out", str(run)]) == 0
    image = str(next((run / "prototypes").glob("*.png")))
    assert main(["predict", str(run), image]) == 0
    assert main(["explain", str(run), image, "--top", "1", "--out", str(tmp_path / "explained")]) == 0
    assert main(["saliency", str(run), image, "--method", "gradcam", "--out", str(tmp_path / "map")]) == 0
    assert list((tmp_path / "explained").rglob("sheet.png"))
    capsys.readouterr()
