"""`dprotonet import` on what TesNet, ST-ProtoPNet, PIP-Net and CaBRNet save, against their forward passes.

Each original is written out once more here, from its paper and the names and shapes of its published code,
with random weights. What is compared are logits, and the place at which each prototype is found.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate, normalize, relu

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.compat import import_guarded
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.import_network import ImportSettings, import_network

CLASSES, PER_CLASS, WIDTH, SIZE = 3, 2, 6, 64
COUNT = CLASSES * PER_CLASS


def randomised(network: nn.Module) -> nn.Module:
    """Running statistics that matter."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return network.eval()


def resnet(strides: dict[str, int] | None = None, name: str = "resnet18") -> nn.Sequential:
    whole = getattr(import_guarded("torchvision.models"), name)()
    trunk = nn.Sequential()
    for part in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
        trunk.add_module(part, getattr(whole, part))
    for layer, stride in (strides or {}).items():
        for convolution in (one for one in getattr(trunk, layer).modules() if isinstance(one, nn.Conv2d)):
            if convolution.stride != (1, 1):
                convolution.stride = (stride, stride)
    return trunk


def convnext(widest: int) -> nn.Module:
    """torchvision's, whose 2×2 convolutions of more than so many channels go by single steps."""
    whole = import_guarded("torchvision.models").convnext_tiny()
    whole.avgpool, whole.classifier = nn.Identity(), nn.Identity()
    for convolution in (one for one in whole.modules() if isinstance(one, nn.Conv2d)):
        if convolution.stride == (2, 2) and convolution.in_channels > widest:
            convolution.stride = (1, 1)
    for name, scale in whole.named_parameters():
        if name.endswith("layer_scale"):
            scale.data.uniform_(-3, 3)  # 1e-6 in the beginning, which hides the blocks
    return whole


def highest(maps: Tensor) -> Tensor:
    return maps.flatten(2).amax(dim=2)


def along(features: Tensor, prototypes: Tensor) -> Tensor:
    return conv2d(features, normalize(prototypes, dim=1))


class TesNet(nn.Module):
    """Basis concepts of unit length; how far a place goes along each, Wang et al., 2021."""

    def __init__(self) -> None:
        super().__init__()
        self.features = resnet()
        self.add_on_layers = nn.Sequential(
            nn.Conv2d(512, WIDTH, 1), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 1), nn.Sigmoid()
        )
        self.prototype_vectors = nn.Parameter(torch.randn(COUNT, WIDTH, 1, 1))
        self.ones = nn.Parameter(torch.ones(COUNT, WIDTH, 1, 1), requires_grad=False)
        self.last_layer = nn.Linear(COUNT, CLASSES, bias=False)

    def maps(self, images: Tensor) -> Tensor:
        return along(self.add_on_layers(self.features(images)), self.prototype_vectors)

    def forward(self, images: Tensor) -> Tensor:
        return self.last_layer(highest(self.maps(images)))


class STProtoPNet(nn.Module):
    """Trivial and support prototypes with nets of their own, Wang et al., 2023; what is tested is the sum."""

    def __init__(self, *, cropped: bool) -> None:
        super().__init__()
        self.features = resnet()
        self.cropped = cropped
        for side in ("trivial", "support"):
            first, second = nn.Conv2d(512, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 1)
            whole = (nn.Upsample(scale_factor=2, mode="bilinear"), first, second)
            layers = (first, nn.Tanh(), second, nn.Tanh()) if cropped else whole
            setattr(self, f"add_on_layers_{side}", nn.Sequential(*layers))
            setattr(self, f"prototype_vectors_{side}", nn.Parameter(torch.randn(COUNT, WIDTH, 1, 1)))
            setattr(self, f"last_layer_{side}", nn.Linear(COUNT, CLASSES, bias=False))
        self.ones = nn.Parameter(torch.ones(COUNT, WIDTH, 1, 1), requires_grad=False)

    def maps(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(images)
        sides = [self.add_on_layers_trivial(features), self.add_on_layers_support(features)]
        vectors = (self.prototype_vectors_trivial, self.prototype_vectors_support)
        if self.cropped:
            return along(sides[0], vectors[0]), along(sides[1], vectors[1])
        cosines = [relu(along(normalize(side, dim=1), own)) for side, own in zip(sides, vectors, strict=True)]
        return cosines[0], cosines[1]

    def forward(self, images: Tensor) -> Tensor:
        trivial, support = self.maps(images)
        return self.last_layer_trivial(highest(trivial)) + self.last_layer_support(highest(support))


class PIPNet(nn.Module):
    """Prototypes as channels under a softmax; presences below 0.1 are none, Nauta et al., 2023."""

    def __init__(self, net: nn.Module, channels: int, count: int = 0, *, least: float = 0.1) -> None:
        super().__init__()
        self._net = net
        convolution = [nn.Conv2d(channels, count, 1)] if count else []
        self._add_on = nn.Sequential(*convolution, nn.Softmax(dim=1))
        self._classification = nn.Linear(count or channels, CLASSES, bias=False)
        self._classification.normalization_multiplier = nn.Parameter(torch.ones(1))
        self._multiplier = self._classification.normalization_multiplier
        self.least = least

    def maps(self, images: Tensor) -> Tensor:
        return self._add_on(self._net(images))

    def forward(self, images: Tensor) -> Tensor:
        presence = highest(self.maps(images))
        presence = torch.where(presence < self.least, 0.0, presence)
        return presence @ self._classification.weight.relu().T


def images() -> Tensor:
    return torch.randn(4, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return randomised(make())


ORIGINALS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "tesnet": (TesNet, {"kind": "tesnet"}),
    "st-protopnet, cropped": (lambda: STProtoPNet(cropped=True), {}),
    "st-protopnet, whole": (lambda: STProtoPNet(cropped=False), {}),
    "pip-net, resnet": (lambda: PIPNet(resnet({"layer3": 1, "layer4": 1}), 512, 9), {}),
    "pip-net, bottlenecks": (lambda: PIPNet(resnet({"layer3": 1, "layer4": 1}, "resnet50"), 2048, 9), {}),
    "pip-net, channels of the backbone": (lambda: PIPNet(resnet({"layer3": 1, "layer4": 1}), 512), {}),
    "pip-net, convnext 26": (lambda: PIPNet(convnext(100), 768), {}),
    "pip-net, convnext 13": (lambda: PIPNet(convnext(300), 768, 9), {"unstrided": 1}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", ORIGINALS)
def test_the_logits_are_those_of_the_original(name: str, tmp_path: Path) -> None:
    make, settings = ORIGINALS[name]
    theirs = seeded(make)
    torch.save(theirs.state_dict(), tmp_path / "net.pth")
    import_network(tmp_path / "net.pth", tmp_path / "run", ImportSettings(image_size=SIZE, **settings))
    ours = dp.load(tmp_path / "run").network
    logits = theirs(images())
    assert logits.std() > 1e-3  # or anything would equal it
    torch.testing.assert_close(ours(images()), logits, rtol=1e-4, atol=1e-4)
    assert _found_where_they_find(ours, theirs.maps(images()))


def _found_where_they_find(ours: Any, maps: Tensor | tuple[Tensor, Tensor]) -> bool:
    """Each prototype's region is where its map is highest, or all but as high."""
    joined = (maps if isinstance(maps, Tensor) else torch.cat(maps, dim=1)).flatten(2)
    region = ours.evidence(images()).region
    return torch.allclose(joined.gather(2, region.unsqueeze(2)).squeeze(2), joined.amax(dim=2), atol=1e-5)


@torch.no_grad()
def test_a_tesnet_under_protopnets_names_has_to_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = seeded(TesNet)
    torch.save(theirs.state_dict(), tmp_path / "net.pth")
    words = ["import", str(tmp_path / "net.pth"), "--image-size", str(SIZE), "--out"]
    assert main([*words, str(tmp_path / "plain")]) == 0
    assert "for one, add --kind tesnet" in capsys.readouterr().out
    assert main([*words, str(tmp_path / "tesnet"), "--kind", "tesnet"]) == 0
    assert "add --kind" not in capsys.readouterr().out
    plain, named = (dp.load(tmp_path / name).network(images()) for name in ("plain", "tesnet"))
    assert (plain - named).abs().max() > 0.1
    torch.testing.assert_close(named, theirs(images()), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_pip_net_of_parallel_training_inside_its_checkpoint(tmp_path: Path) -> None:
    theirs = seeded(lambda: PIPNet(resnet({"layer3": 1, "layer4": 1}), 512, 9))
    state = {f"module.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({"model_state_dict": state, "optimizer_net_state_dict": {"state": {}}}, tmp_path / "net.pth")
    report = import_network(tmp_path / "net.pth", tmp_path / "run", ImportSettings(image_size=SIZE))
    assert report["kind"] == "pip-net"
    torch.testing.assert_close(
        dp.load(tmp_path / "run").network(images()), theirs(images()), rtol=1e-4, atol=1e-4
    )


def test_an_imported_network_predicts_and_shows_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(seeded(lambda: STProtoPNet(cropped=False)).state_dict(), tmp_path / "net.pth")
    run, picture = tmp_path / "run", tmp_path / "picture.png"
    assert main(["import", str(tmp_path / "net.pth"), "--out", str(run), "--image-size", str(SIZE)]) == 0
    sample = torch.randint(256, (SIZE, SIZE, 3), generator=torch.Generator().manual_seed(1))
    import_guarded("PIL.Image").fromarray(sample.byte().numpy()).save(picture)
    capsys.readouterr()
    assert main(["predict", str(run), str(picture), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["predictions"]
    total = sum(item["contribution"] for item in found["evidence"]) + found["rest"]
    assert total == pytest.approx(found["logit"])
    out = str(tmp_path / "maps")
    assert main(["saliency", str(run), str(picture), "--out", out, "--method", "similarity"]) == 0


MISTAKES: list[tuple[Callable[[], nn.Module], dict[str, Any], str]] = [
    (
        lambda: STProtoPNet(cropped=True),
        {"last_layer_support.weight": None},
        "last_layer_support.weight is mis",
    ),
    (
        lambda: STProtoPNet(cropped=True),
        {"last_layer_support.weight": torch.zeros(3, 7)},
        "the shapes are not",
    ),
    (lambda: STProtoPNet(cropped=True), {"add_on_layers_trivial.4.weight": torch.zeros(1)}, "is unknown"),
    (lambda: PIPNet(resnet(), 512, 9), {"_classification.bias": torch.zeros(3)}, "a bias in its last layer"),
    (
        lambda: PIPNet(resnet(), 512, 9),
        {"_add_on.0.weight": torch.zeros(8, 512, 1, 1)},
        "not one channel for",
    ),
    (lambda: PIPNet(resnet(), 512, 9), {"_net.layer4.1.bn2.bias": None}, "no ResNet, VGG"),
    (lambda: PIPNet(resnet(), 512, 9), {"_extra.weight": torch.zeros(1)}, "_extra.weight is unknown"),
]


@pytest.mark.parametrize(("make", "changes", "message"), MISTAKES, ids=[row[2] for row in MISTAKES])
def test_files_that_do_not_fit(
    make: Callable[[], nn.Module],
    changes: dict[str, Any],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = {name: value for name, value in {**make().state_dict(), **changes}.items() if value is not None}
    torch.save(state, tmp_path / "net.pth")
    assert main(["import", str(tmp_path / "net.pth"), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "run").exists()


def test_strides_that_a_backbone_has_not(tmp_path: Path) -> None:
    torch.save(PIPNet(resnet(), 512, 9).state_dict(), tmp_path / "net.pth")
    with pytest.raises(UserError, match="has 3 stages whose convolutions have stride 2"):
        import_network(tmp_path / "net.pth", tmp_path / "run", ImportSettings(unstrided=4))


def test_a_whole_pickled_model_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(nn.Linear(1, 1), tmp_path / "net.pth")
    assert main(["import", str(tmp_path / "net.pth"), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert 'torch.save(model.state_dict(), "weights.pth")' in error
    assert error.strip().count("\n") == 0


def test_what_was_imported_is_not_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--out", str(tmp_path / "run"), "--network", "protopnet", "--activation", "tanh"]
    assert main([*words, "--similarity", "projection"]) == 2
    assert "not trained here" in capsys.readouterr().err


def test_interpolation_and_convolution_may_change_places() -> None:
    """What `TwoNets` relies on."""
    layer, maps = nn.Conv2d(5, 7, 1), torch.randn(2, 5, 4, 3)
    first = layer(interpolate(maps, scale_factor=2.0, mode="bilinear"))
    torch.testing.assert_close(interpolate(layer(maps), scale_factor=2.0, mode="bilinear"), first)
