"""`dprotonet import` on folders as CaBRNet saves them, against its networks' forward passes written out."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.compat import import_guarded
from dprotonet.experiment.transfer.import_network import ImportSettings, import_network

CLASSES, PER_CLASS, WIDTH, SIZE = 3, 2, 6, 64
COUNT = CLASSES * PER_CLASS


class Extractor(nn.Module):
    """A trunk of torchvision's up to a layer, and an add-on whose layers have names."""

    def __init__(self, convnet: nn.Module, add_on: dict[str, nn.Module]) -> None:
        super().__init__()
        self.convnet = convnet
        self.add_on = nn.Sequential(OrderedDict(add_on))

    def forward(self, images: Tensor) -> Tensor:
        return self.add_on(self.convnet(images))


class ProtoPNet(nn.Module):
    def __init__(self, extractor: Extractor, similarity: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = nn.Module()
        self.classifier.prototypes = nn.Parameter(torch.rand(COUNT, WIDTH, 1, 1))
        self.classifier.last_layer = nn.Linear(COUNT, CLASSES, bias=False)
        owners = torch.tensor([2, 0, 1, 1, 0, 2])  # in no order, one of them switched off
        table = nn.functional.one_hot(owners, CLASSES).float()
        table[3] = 0
        self.classifier.register_buffer("proto_class_map", table)
        self.similarity = similarity

    def forward(self, images: Tensor) -> Tensor:
        maps = self.similarity(self.extractor(images), self.classifier.prototypes)
        return self.classifier.last_layer(maps.flatten(2).amax(dim=2))


class PIPNet(nn.Module):
    """Without the threshold that its authors' code has when it predicts."""

    def __init__(self, extractor: Extractor, count: int) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = nn.Module()
        self.classifier.prototypes = nn.Parameter(torch.empty(0))
        self.classifier.last_layer = nn.Linear(count, CLASSES, bias=False)
        self.classifier.normalization_multiplier = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        presence = self.extractor(images).softmax(dim=1).flatten(2).amax(dim=2)
        return presence @ self.classifier.last_layer.weight.relu().T


def logarithm(features: Tensor, prototypes: Tensor) -> Tensor:
    differences = features.unsqueeze(1) - prototypes.flatten(1)[None, :, :, None, None]
    distances = differences.square().sum(dim=2)
    return ((distances + 1) / (distances + 1e-3)).log()


def cosine(features: Tensor, prototypes: Tensor) -> Tensor:
    return cosine_similarity(features.unsqueeze(1), prototypes.flatten(1)[None, :, :, None, None], dim=2)


def resnet() -> nn.Sequential:
    whole = import_guarded("torchvision.models").resnet18()
    names = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
    return nn.Sequential(OrderedDict((name, getattr(whole, name)) for name in names))


class ConvNeXt(nn.Module):
    """convnext_tiny's `features`, as stride_divider leaves them."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.features = import_guarded("torchvision.models").convnext_tiny().features
        for convolution in (one for one in self.features.modules() if isinstance(one, nn.Conv2d)):
            if convolution.in_channels > least and convolution.stride == (2, 2):
                convolution.stride = (1, 1)
        for name, scale in self.features.named_parameters():
            if name.endswith("layer_scale"):
                scale.data.uniform_(-1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.features(images)


def add_on(*, sigmoid: bool = True, bias: bool = True) -> dict[str, nn.Module]:
    first, second = nn.Conv2d(512, WIDTH, 1, bias=bias), nn.Conv2d(WIDTH, WIDTH, 1)
    ending = {"act2": nn.Sigmoid()} if sigmoid else {}
    return {"conv1": first, "act1": nn.ReLU(), "conv2": second, **ending}


def described(name: str, arch: str, layer: str, added: dict[str, nn.Module], **rest: Any) -> dict[str, Any]:
    layers = {key: {"type": type(module).__name__} for key, module in added.items()}
    extractor = {"backbone": {"arch": arch, "layer": layer, "weights": None}, "add_on": layers}
    return {"top_arch": {"module": "cabrnet", "name": name}, "extractor": extractor, **rest}


def saved(network: nn.Module, plan: dict[str, Any], folder: Path) -> Path:
    folder.mkdir()
    torch.save(network.state_dict(), folder / "model_state.pth")
    (folder / "model_arch.yml").write_text(yaml.safe_dump(plan, sort_keys=False))
    (folder / "state.pickle").write_bytes(b"is not read")
    return folder


def protopnet(similarity: str = "ProtoPNetSimilarity", **params: Any) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    logs = similarity != "CosineSimilarity"
    added = add_on(sigmoid=logs, bias=not logs)
    network = ProtoPNet(Extractor(resnet(), added), logarithm if logs else cosine).eval()
    return network, described(
        "ProtoPNet", "resnet18", "layer4", added, similarity={"name": similarity, "params": params}
    )


def pip_net(least: int) -> tuple[nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    network = PIPNet(Extractor(ConvNeXt(least), {}), 768).eval()
    plan = described("PIPNet", "convnext_tiny", "features", {}, similarity={"name": "None"})
    rule = {"stride_divider": {"ratio": 2, "min_channels": least}}
    plan["extractor"]["backbone"]["postprocess"] = rule
    return network, plan


NETWORKS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "log": lambda: protopnet(stability_factor=1e-3),
    "cosine": lambda: protopnet("CosineSimilarity"),
    "pip-net, 2 stages": lambda: pip_net(100),
    "pip-net, 1 stage": lambda: pip_net(300),
}


@torch.no_grad()
@pytest.mark.parametrize("name", NETWORKS)
def test_the_logits_are_those_of_the_original(name: str, tmp_path: Path) -> None:
    theirs, plan = NETWORKS[name]()
    folder = saved(theirs, plan, tmp_path / "cabrnet")
    report = import_network(folder, tmp_path / "run", ImportSettings(image_size=SIZE))
    ours = dp.load(tmp_path / "run")
    images = torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))
    logits = theirs(images)
    assert logits.std() > 1e-3
    torch.testing.assert_close(ours.network(images), logits, rtol=1e-4, atol=1e-4)
    assert report["kind"].startswith("cabrnet")
    if isinstance(theirs, ProtoPNet):
        weights = theirs.classifier.last_layer.weight
        assert ours.network.prototype_class.tolist() == [2, 0, 1, int(weights[:, 3].argmax()), 0, 2]


def test_a_pipeline_with_a_name(tmp_path: Path) -> None:
    """As later versions describe it."""
    theirs, plan = protopnet(stability_factor=1e-3)
    extractor = plan["extractor"]
    layer, added = extractor["backbone"].pop("layer"), extractor.pop("add_on")
    extractor["convnet"] = {"source_layer": layer, "add_on": {"init_mode": "PROTOPNET", **added}}
    folder = saved(theirs, plan, tmp_path / "cabrnet")
    import_network(folder, tmp_path / "run", ImportSettings(image_size=SIZE))
    images = torch.randn(1, 3, SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(
            dp.load(tmp_path / "run").network(images), theirs(images), rtol=1e-4, atol=1e-4
        )


def _named(plan: dict[str, Any], *path: str, value: Any) -> None:
    for key in path[:-1]:
        plan = plan[key]
    plan[path[-1]] = value


MISTAKES: list[tuple[tuple[str, ...], Any, str]] = [
    (("top_arch", "name"), "ProtoTree", "a ProtoTree of CaBRNet; of its networks"),
    (("top_arch",), None, "has no part 'top_arch'"),
    (("extractor", "backbone", "layer"), "layer3", "features are those of layer3 of resnet18"),
    (("extractor", "backbone", "arch"), "densenet121", "features are those of layer4 of densenet121"),
    (("extractor", "add_on", "act1", "type"), "Tanh", "the add-on is Conv2d, Tanh"),
    (("similarity", "name"), "ProtoTreeSimilarity", "similarity ProtoTreeSimilarity; known"),
    (("extractor", "backbone", "postprocess"), {"prune": {}}, "only stride_divider by 2"),
]


@pytest.mark.parametrize(("path", "value", "message"), MISTAKES, ids=[row[2] for row in MISTAKES])
def test_networks_that_do_not_fit(
    path: tuple[str, ...], value: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, plan = protopnet()
    _named(plan, *path, value=value)
    folder = saved(theirs, plan, tmp_path / "cabrnet")
    assert main(["import", str(folder), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "run").exists()


HOSTILE = {
    "objects": "top_arch: !!python/object/apply:os.system ['touch planted']\n",
    "no mapping": "- 1\n",
    "damaged": "top_arch: {",
    "binary": "\x00\x01",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_description_is_not_obeyed(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = saved(*protopnet(), tmp_path / "cabrnet")
    (folder / "model_arch.yml").write_text(content)
    assert main(["import", str(folder), "--out", str(tmp_path / "run")]) == 2
    assert "model_arch.yml" in capsys.readouterr().err
    assert not (tmp_path / "planted").exists()


def test_its_weights_alone_do_not_say_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(*protopnet(), tmp_path / "cabrnet")
    assert main(["import", str(folder / "model_state.pth"), "--out", str(tmp_path / "run")]) == 2
    assert "is of CaBRNet; give its folder" in capsys.readouterr().err
