"""What a checkpoint keeps besides weights: the scale of losses in half precision."""

import json
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from tests.conftest import tiny_network, tiny_views
from torch.amp import GradScaler

from dprotonet.cli.progress import describe
from dprotonet.errors import UserError
from dprotonet.training.checkpoint import load_checkpoint, save_checkpoint, save_tensors
from dprotonet.training.engine import Engine
from dprotonet.training.events import EpochDone
from dprotonet.training.phases import LearningRates, plan
from dprotonet.training.push import Pusher


def engine(scaler: GradScaler | None) -> Engine:
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = scaler
    return Engine(tiny_network(), tiny_views(), tiny_views("val"), accelerator, Pusher(accelerator))


def worked_scaler() -> GradScaler:
    """A scaler that met an overflow, and a good step after it."""
    scaler, weight = (
        GradScaler("cpu", init_scale=1024.0, growth_interval=7),
        torch.nn.Parameter(torch.ones(1)),
    )
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(weight * factor).sum().backward()
        scaler.step(optimizer)
        scaler.update()
    return scaler


def test_the_scale_of_losses_comes_back(tmp_path: Path) -> None:
    used = worked_scaler()
    assert (used.get_scale(), used.state_dict()["_growth_tracker"]) == (512.0, 1)
    save_checkpoint(tmp_path / "kept", engine(used), {})
    fresh = engine(GradScaler("cpu", init_scale=65536.0))
    load_checkpoint(tmp_path / "kept", fresh)
    assert fresh.accelerator.scaler.state_dict() == used.state_dict()
    fresh.accelerator.scaler.scale(torch.ones(1))  # as the first step does, which makes the scale a tensor
    assert fresh.accelerator.scaler.get_scale() == 512.0


@pytest.mark.parametrize("scaler", [None, GradScaler("cpu", enabled=False)])
def test_without_one_nothing_is_kept_and_any_checkpoint_is_read(
    tmp_path: Path, scaler: GradScaler | None
) -> None:
    save_checkpoint(tmp_path / "plain", engine(scaler), {"mark": 1})
    save_checkpoint(tmp_path / "half", engine(worked_scaler()), {"mark": 2})
    assert json.loads((tmp_path / "plain" / "state.json").read_text())["scaler"] == {}
    assert load_checkpoint(tmp_path / "half", engine(scaler)) == {"mark": 2}
    into = engine(worked_scaler())
    assert load_checkpoint(tmp_path / "plain", into) == {"mark": 1}
    assert into.accelerator.scaler.get_scale() == 512.0


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "kept", engine(worked_scaler()), {"mark": 1})
    state = json.loads((tmp_path / "kept" / "state.json").read_text())
    del state["scaler"]
    (tmp_path / "kept" / "state.json").write_text(json.dumps(state))
    assert load_checkpoint(tmp_path / "kept", engine(worked_scaler())) == {"mark": 1}


def test_steps_that_an_earlier_version_did_not_count_stay_unknown(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "kept", engine(None), {})
    path = tmp_path / "kept" / "state.json"
    state = json.loads(path.read_text())
    del state["position"]["steps"]
    path.write_text(json.dumps(state))
    resumed = engine(None)
    load_checkpoint(tmp_path / "kept", resumed)
    stages = plan(LearningRates(), epochs=1, warm=0, push_every=1, last_layer=0)
    done = [event for event in resumed.run(stages) if isinstance(event, EpochDone)]
    assert [event.steps for event in done] == [None]
    assert describe(done[0]).endswith("unknown steps")


def test_a_damaged_scale_is_told(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "kept", engine(worked_scaler()), {})
    path = tmp_path / "kept" / "state.json"
    state = json.loads(path.read_text())
    state["scaler"] = {"scale": 2.0}
    path.write_text(json.dumps(state))
    with pytest.raises(UserError, match="damaged"):
        load_checkpoint(tmp_path / "kept", engine(worked_scaler()))


def test_weights_may_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").touch()
    save_tensors(tmp_path / "model.safetensors", {"weight": torch.zeros(2)})
    plain, model = ((tmp_path / name).stat().st_mode for name in ("plain.txt", "model.safetensors"))
    assert plain == model
