"""Less memory, the same training: pieces of a step, recomputed activations, layouts, half precision; and the
error where it does not suffice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from tests.conftest import tiny_config, tiny_network, tiny_views
from torch import Tensor, nn

from dprotonet.cli.main import main
from dprotonet.data.transforms import View
from dprotonet.encoder.backbone import Backbone, BackboneSpec, load_backbone
from dprotonet.encoder.levels import JoinedLevels
from dprotonet.errors import ComputationError, UserError
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.events import EpochDone
from dprotonet.training.memory import (
    checkpoint_activations,
    in_pieces,
    is_out_of_memory,
    kept_bytes,
    memory_remedies,
    statistics_at_rest,
)
from dprotonet.training.objective import WholeObjective
from dprotonet.training.phases import LearningRates, Phase
from dprotonet.training.push import Pusher


def trained(accumulate: int) -> tuple[dict[str, Tensor], list[EpochDone]]:
    """Three joint epochs in batches of 7, 4 and 4 images, BatchNorm at rest."""
    network, accelerator = tiny_network(), Accelerator(cpu=True)
    settings = EngineSettings(batch=7, frozen_norm=True, accumulate=accumulate)
    views, val = tiny_views("train"), tiny_views("val")
    engine = Engine(network, views, val, accelerator, Pusher(accelerator), settings=settings)
    events = engine.run([Phase("joint", 3, LearningRates(1e-3, 3e-3, 3e-3, 1e-3))])
    epochs = [event for event in events if isinstance(event, EpochDone)]
    assert engine.position.steps == 9  # a step is a step, in however many pieces
    return network.state_dict(), epochs


@pytest.mark.parametrize("accumulate", [2, 3, 100])
def test_a_step_in_pieces_is_the_step(accumulate: int) -> None:
    (whole, epochs), (pieces, same) = trained(1), trained(accumulate)
    for name in whole:
        torch.testing.assert_close(pieces[name], whole[name], rtol=1e-4, atol=1e-5, msg=name)
    for one, other in zip(epochs, same, strict=True):
        assert other.train_accuracy == one.train_accuracy
        assert other.terms == pytest.approx(one.terms, rel=1e-4)


def test_pieces_are_of_nearly_one_size_and_lose_nothing() -> None:
    view = View(torch.arange(7).float(), torch.arange(7), torch.arange(7))  # type: ignore[arg-type]
    for count, sizes in ((1, [7]), (2, [4, 3]), (3, [3, 2, 2]), (9, [1] * 7)):
        pieces = in_pieces(view, count)
        assert [len(piece.labels) for piece in pieces] == sizes
        assert torch.equal(torch.cat([piece.inputs for piece in pieces]), view.inputs)
        assert sum(piece.share for piece in pieces) == pytest.approx(1)


# ── options of a whole run ──


def final(out: Path, **changes: object) -> tuple[dict[str, Tensor], list[float]]:
    """The kept model of a joint run, and its losses."""
    for _ in Trainer(tiny_config(mode="joint", patience=9, **changes), out).run():
        pass
    losses = [item["loss"] for item in RunFolder(out).read_metrics() if item["event"] == "EpochDone"]
    return load_file(out / "model.safetensors"), losses


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], list[float]]:
    return final(tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize("option", [{"checkpoint_activations": True}, {"memory_format": "channels_first"}])
def test_recomputing_and_layout_change_nothing_but_rounding(
    tmp_path: Path, plain: tuple[dict[str, Tensor], list[float]], option: dict[str, object]
) -> None:
    """BatchNorm statistics, too: a batch that is computed twice counts once."""
    weights, losses = final(tmp_path / "run", **option)
    assert losses == pytest.approx(plain[1], rel=2e-3)
    statistics = [name for name in weights if "running" in name or "num_batches" in name]
    assert statistics
    for name in statistics:
        torch.testing.assert_close(weights[name], plain[0][name], rtol=2e-2, atol=2e-3, msg=name)


def test_stages_that_are_not_frozen_recompute(tmp_path: Path) -> None:
    """The division looked for stages that a trunk goes around when it recomputes, and refused."""
    plain, less = (
        final(tmp_path / f"{recomputes}", frozen_stages=2, checkpoint_activations=recomputes)
        for recomputes in (False, True)
    )
    assert less[1] == pytest.approx(plain[1], rel=2e-3)


def test_half_precision_trains_nearly_the_same(
    tmp_path: Path, plain: tuple[dict[str, Tensor], list[float]]
) -> None:
    _, losses = final(tmp_path / "run", mixed_precision="bf16")
    assert losses == pytest.approx(plain[1], rel=0.1)
    assert losses != plain[1]


def test_a_stopped_run_goes_on_with_less_memory(tmp_path: Path) -> None:
    config = tiny_config(mode="joint")
    events = Trainer(config, tmp_path / "run").run()
    next(event for event in events if isinstance(event, EpochDone))
    events.close()
    less = replace(config, training=replace(config.training, accumulate=3, checkpoint_activations=True))
    assert any(isinstance(event, EpochDone) for event in Trainer(less, tmp_path / "run", resume=True).run())


# ── recomputed activations ──


@pytest.mark.parametrize("levels", [1, 2])
def test_recomputing_keeps_less_and_gives_the_same_gradients(levels: int) -> None:
    backbone = load_backbone("timm:test_efficientnet:none", image_size=64)
    if levels > 1:
        backbone = JoinedLevels(backbone, levels, image_size=64, channels=16)
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    gradients, kept = [], []
    for recomputes in (False, True):
        if recomputes:
            checkpoint_activations(backbone, image_size=64)
        backbone.zero_grad()
        backbone(images).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in backbone.parameters()])  # type: ignore[union-attr]
        kept.append(kept_bytes(backbone, 64))
    assert kept[1] < 0.7 * kept[0]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


class Trunk(nn.Module):
    """The least that timm offers."""

    num_features = 4

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 8, stride=8)

    def forward_features(self, images: Tensor) -> Tensor:
        features: Tensor = self.layer(images).relu().sigmoid()
        return features


class Refusing(Trunk):
    """As VGG does."""

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        assert not enable, "gradient checkpointing not supported"


class Deaf(Trunk):
    """Takes the word and keeps all."""

    def set_grad_checkpointing(self, enable: bool = True) -> None: ...


def test_a_trunk_that_recomputes_one_map_alone_is_told_of_levels() -> None:
    levels = JoinedLevels(load_backbone("timm:resnet10t:none", image_size=64), 2, image_size=64)
    with pytest.raises(UserError, match="or choose --levels 1"):
        checkpoint_activations(levels, image_size=64)


@pytest.mark.parametrize("trunk", [Trunk, Refusing, Deaf])
def test_a_trunk_that_cannot_recompute_is_named(trunk: type[Trunk]) -> None:
    backbone = Backbone(trunk(), BackboneSpec("resnet18", "none"))
    with pytest.raises(UserError, match=rf"{trunk.__name__} cannot recompute.*--accumulate"):
        checkpoint_activations(backbone, image_size=32)


def test_statistics_come_back_as_they_were() -> None:
    norms = nn.ModuleList([nn.BatchNorm2d(2), nn.BatchNorm2d(2, momentum=None)])
    images = torch.randn(4, 2, 3, 3)
    for norm in norms:
        norm(images)
    before = {name: value.clone() for name, value in norms.state_dict().items()}
    with statistics_at_rest(norms):
        for norm in norms:
            norm(images)
    assert all(torch.equal(before[name], value) for name, value in norms.state_dict().items())
    assert [norm.momentum for norm in norms] == [0.1, None]
    norms[0](images)
    assert not torch.equal(before["0.running_mean"], norms[0].running_mean)


# ── out of memory ──


def really(*_: object) -> Any:
    """More than any machine has."""
    return torch.empty(2**60)


def refused(error: BaseException) -> Any:
    def forward(*_: object) -> Any:
        raise error

    return forward


FAILURES = {
    "cpu": really,
    "cuda": refused(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")),
    "cublas": refused(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")),
    "mps": refused(RuntimeError("MPS backend out of memory (MPS allocated: 18.00 GB)")),
    "python": refused(MemoryError()),
}

TINY = [
    *["train", "--species", "2", "--train-per-species", "6", "--val-per-species", "4", "--image-size", "64"],
    *["--epochs", "1", "--warm-epochs", "0", "--push-every", "1", "--last-layer-epochs", "1"],
    *["--backbone", "timm:test_resnet:none", "--batch-size", "4", "--masks", "12", "--dimension", "16"],
    *["--prototypes-per-class", "2", "--push-images", "2"],
]


@pytest.mark.parametrize("kind", FAILURES)
def test_out_of_memory_names_what_to_change(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, "--out", str(tmp_path / "run")]
    with monkeypatch.context() as patch:
        patch.setattr(WholeObjective, "forward", FAILURES[kind])
        assert main(words) == 1
    said = capsys.readouterr().err
    assert "out of memory with 4 images at a time" in said
    flags = ("--accumulate 4", "--checkpoint-activations", "--mixed-precision bf16", "--batch-size than 4")
    assert all(flag in said for flag in flags)
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".tmp" or path.name.endswith(".new")]
    assert main([*words, "--resume", "--accumulate", "4"]) == 0


def test_other_errors_stay_what_they_are() -> None:
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"), memory_remedies(batch=4, accumulate=1, joint=True):
        raise RuntimeError("shapes")
    with pytest.raises(ComputationError) as told, memory_remedies(batch=9, accumulate=2, joint=False):
        raise MemoryError
    assert "5 images" in str(told.value)
    assert "--checkpoint-activations" not in str(told.value)
