"""Exported models say what PyTorch says: logits, probabilities, evidence, for any number of images."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from tests.experiment.export.conftest import SIZE, Exported, images, untrained
from torch import Tensor, nn

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.errors import ComputationError
from dprotonet.experiment.transfer.export.card import KEY, Card
from dprotonet.experiment.transfer.export.deployed import STRANGENESS, Decision, Deployed, Reasons
from dprotonet.experiment.transfer.export.write import _difference, export, onnx_proto, traced

KINDS = ("spatial", "uniform", "levels", "parts", "protopnet", "blackbox")


def deployed(kind: str) -> Deployed:
    model = untrained(kind)
    return Deployed(model.network, model.normalise)


@pytest.mark.parametrize("kind", [*KINDS, "grey", "gen-protopnet", "xprotonet", "protopool", "pip-net"])
@torch.no_grad()
def test_deployed_is_the_network_and_its_normalisation(kind: str) -> None:
    model, pixels = untrained(kind), images(3)
    found = dict(zip(deployed(kind).outputs, deployed(kind)(pixels.float() / 255), strict=True))
    inputs = model.normalise(pixels)
    torch.testing.assert_close(found["logits"], model.network(inputs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["probabilities"], found["logits"].softmax(1))
    if isinstance(model.network, dp.DProtoNet):
        wanted = model.network.evidence(inputs)
        for name in ("scores", "distances"):
            torch.testing.assert_close(found[name], getattr(wanted, name), rtol=1e-4, atol=1e-5)
        assert (found["region"] == wanted.region).float().mean() > 0.9  # two regions may be equally near
        first, second = found["logits"].topk(2, dim=1).values.unbind(1)
        for name, logit in (("contributions", first), ("rival_contributions", second)):
            torch.testing.assert_close(found[name].sum(1), logit, rtol=1e-4, atol=1e-5)


def test_the_network_itself_stays_as_it_was() -> None:
    network = untrained("spatial").network
    assert isinstance(network, dp.DProtoNet)
    before, learns = network.prototypes.assignment, [item.requires_grad for item in network.parameters()]
    deployed("spatial")
    assert network.prototypes.assignment is before
    assert [item.requires_grad for item in network.parameters()] == learns


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_parity(kind: str) -> None:
    """ONNX and torch.export against PyTorch, for several numbers of images, one included."""
    module, model = deployed(kind), untrained(kind)
    if kind != "levels":  # whose backbone is what is new about it; this one is soon traced
        module.network.encoder.backbone = nn.Sequential(nn.Conv2d(3, 96, 32, stride=32), nn.ReLU())
    program = traced(module, SIZE)
    proto = onnx_proto(program, module.outputs, Card.of(model, module))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 2, 7):
        inputs = images(count, seed=count).float() / 255
        wanted = module(inputs)
        assert len(wanted) == len((Decision if kind == "blackbox" else Reasons)._fields)
        _same(wanted, [torch.from_numpy(item) for item in session.run(None, {"images": inputs.numpy()})])
        _same(wanted, program.module()(inputs))


def _same(wanted: tuple[Tensor, ...], found: list[Tensor]) -> None:
    for one, other in zip(wanted, found, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)


def test_the_file_carries_its_card(exported: Exported) -> None:
    proto = onnx.load(exported.onnx)
    (text,) = [item.value for item in proto.metadata_props if item.key == KEY]
    assert text == exported.onnx.with_suffix(".json").read_text(encoding="utf-8")
    card, model = Card.from_json(text, where="model.onnx"), untrained("spatial")
    assert card.classes == model.classes
    assert model.familiarity is not None
    assert card.familiarity == replace(model.familiarity, features=None)
    assert [item.source for item in card.prototypes] == [item.source for item in model.prototypes]
    assert card.outputs == tuple(item.name for item in proto.graph.output)
    for value in (*proto.graph.input, *proto.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    extra = {f"{KEY}.json": ""}
    torch.export.load(exported.torch, extra_files=extra)  # our own file, a moment old
    assert extra[f"{KEY}.json"] == text


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"classes": ["one"]},
        {"classes": [1, 2]},
        {"image_size": 10**9},
        {"std": [0, 0, 0]},
        {"mean": [0]},
        {"channels": 2},
        {"prototypes": [{"class_name": "a"}]},
        {"familiarity": {"threshold": 1}},
        {"parts": 1},
        {"odd": 1},
    ],
)
def test_a_strangers_card_is_not_trusted(change: dict) -> None:
    content = json.loads(Card.of(untrained("spatial"), deployed("spatial")).to_json())
    with pytest.raises(dp.UserError, match="export it again"):
        Card.from_json(json.dumps({**content, **change}), where="model.onnx")


@pytest.mark.parametrize(("kind", "parts"), [("parts", True), ("spatial", False), ("blackbox", False)])
def test_a_card_tells_whether_regions_are_parts(kind: str, parts: bool) -> None:
    card = Card.of(untrained(kind), deployed(kind))
    assert Card.from_json(card.to_json(), where="model.onnx") == card
    assert card.parts is parts


def test_a_card_of_before_parts_still_loads() -> None:
    card = Card.of(untrained("parts"), deployed("parts"))
    content = json.loads(card.to_json())
    del content["parts"]
    assert Card.from_json(json.dumps(content), where="model.onnx") == replace(card, parts=False)


def test_the_command_tells_what_it_did(exported: Exported, capsys: pytest.CaptureFixture[str]) -> None:
    assert exported.told["files"] == [
        str(path) for path in (exported.onnx, exported.torch, exported.onnx.with_suffix(".json"))
    ]
    assert exported.told["outputs"] == [*Reasons._fields, STRANGENESS]
    assert exported.told["difference"] < 1e-4
    assert main(["export", str(exported.run), "--torch", str(exported.torch)]) == 2
    assert "already there; add --overwrite" in capsys.readouterr().err


def test_a_run_folders_own_file_is_not_overwritten_by_a_card(
    exported: Exported, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "prototypes.json"
    theirs.write_text('{"prototypes": []}', encoding="utf-8")
    words = ["export", str(exported.run), "--onnx", str(theirs.with_suffix(".onnx"))]
    for more in ([], ["--overwrite"]):
        assert main([*words, *more]) == 2
        assert "is no card of an export; choose another name" in capsys.readouterr().err
    assert theirs.read_text(encoding="utf-8") == '{"prototypes": []}'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "nothing to export to"),
        ("--onnx model.pt", "must end in .onnx"),
        ("--torch model.onnx", "must end in .pt2"),
        ("--onnx model.onnx", "does not exist"),
    ],
)
def test_mistakes(words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path / "run"), *words.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(dp.UserError, match=rf"package {package}: pip install 'dprotonet\[onnx\]'"):
        export(untrained("spatial"), onnx=tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_program_that_differs_is_an_error() -> None:
    model, module = untrained("blackbox"), deployed("blackbox")
    with pytest.raises(ComputationError, match=r"differs from PyTorch by 0.1"):
        _difference(module, Card.of(model, module), lambda inputs: module(inputs)[0] + 0.1)
