"""`dprotonet import` on state dicts under ProtoPNet's names, against its forward pass written out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, relu

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.compat import import_guarded
from dprotonet.errors import UserError
from dprotonet.experiment.transfer.foreign.protopnet import ProtoPNetFile
from dprotonet.experiment.transfer.import_network import ImportSettings, import_network

CLASSES, PER_CLASS, DIMENSION, SIZE = 3, 2, 8, 64


class Original(nn.Module):
    """ProtoPNet as its authors wrote it, around a trunk of torchvision."""

    def __init__(self, features: nn.Module, channels: int, patch: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.features = features
        self.add_on_layers = nn.Sequential(
            nn.Conv2d(channels, DIMENSION, 1), nn.ReLU(), nn.Conv2d(DIMENSION, DIMENSION, 1), nn.Sigmoid()
        )
        count = CLASSES * PER_CLASS
        self.prototype_vectors = nn.Parameter(torch.rand(count, DIMENSION, *patch))
        self.ones = nn.Parameter(torch.ones(count, DIMENSION, *patch), requires_grad=False)
        self.last_layer = nn.Linear(count, CLASSES, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        x = self.add_on_layers(self.features(images))
        p = self.prototype_vectors
        squares = conv2d(x**2, self.ones) - 2 * conv2d(x, p) + (p**2).sum(dim=(1, 2, 3)).view(-1, 1, 1)
        distances = relu(squares)
        smallest = -max_pool2d(-distances, kernel_size=distances.shape[2:]).flatten(1)
        return self.last_layer(torch.log((smallest + 1) / (smallest + 1e-4)))


def _resnet() -> nn.Module:
    whole = import_guarded("torchvision.models").resnet18()
    whole.avgpool, whole.fc = nn.Identity(), nn.Identity()
    names = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
    trunk = nn.Sequential()
    for name in names:
        trunk.add_module(name, getattr(whole, name))
    return trunk


def _vgg() -> nn.Module:
    vgg = import_guarded("torchvision.models.vgg")
    layers: nn.Module = vgg.make_layers(vgg.cfgs["A"])  # without the classifier, which is large
    return layers


class _Inner(nn.Module):
    """The VGG and DenseNet of ProtoPNet keep their layers one name deeper."""

    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features

    def forward(self, images: Tensor) -> Tensor:
        return relu(self.features(images))


TRUNKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet18": (_resnet, 512),
    "vgg11": (lambda: _Inner(_vgg()), 512),
    "densenet121": (lambda: _Inner(import_guarded("torchvision.models").densenet121().features), 1024),
}


def original(name: str = "resnet18", patch: tuple[int, int] = (1, 1)) -> Original:
    torch.manual_seed(0)
    make, channels = TRUNKS[name]
    network = Original(make(), channels, patch).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # running statistics that matter
            module.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return network


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("protopnet") / "net.pth"
    torch.save(original().state_dict(), path)
    return path


@pytest.fixture(scope="module")
def run(file: Path) -> Path:
    out = file.parent / "run"
    names = file.parent / "names.txt"
    names.write_text("ant\nbee\n\ncat\n")
    words = ["import", str(file), "--out", str(out), "--classes", str(names), "--image-size", str(SIZE)]
    assert main(words) == 0
    return out


@pytest.fixture(scope="module")
def picture(file: Path) -> Path:
    path = file.parent / "picture.png"
    pixels = torch.randint(
        256, (SIZE, SIZE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    Image.fromarray(pixels.numpy()).save(path)
    return path


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "patch"),
    [("resnet18", (1, 1)), ("resnet18", (2, 1)), ("vgg11", (1, 1)), ("densenet121", (1, 1))],
)
def test_the_logits_are_those_of_the_original(name: str, patch: tuple[int, int], tmp_path: Path) -> None:
    theirs = original(name, patch)
    torch.save(theirs.state_dict(), tmp_path / "net.pth")
    report = import_network(tmp_path / "net.pth", tmp_path / "run", ImportSettings(image_size=SIZE))
    ours = dp.load(tmp_path / "run").network
    images = torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))
    logits = theirs(images)
    torch.testing.assert_close(ours(images), logits, rtol=1e-4, atol=1e-4)
    assert logits.std() > 1e-3  # or anything would equal it
    assert report["backbone"] == f"timm:{name}:none"
    counted = [key for key in theirs.features.state_dict() if not key.endswith("num_batches_tracked")]
    assert report["matched"]["trunk"] == len(counted)


def test_predict_names_classes_and_sums_up(
    run: Path, picture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(run), str(picture), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["predictions"]
    assert found["class_name"] in ("ant", "bee", "cat")
    assert found["evidence"][0]["source"] == "unknown"
    total = sum(item["contribution"] for item in found["evidence"]) + found["rest"]
    assert total == pytest.approx(found["logit"])
    assert json.loads((run / "imported.json").read_text())["sources"].startswith("unknown")


def test_what_needs_source_images_says_so(
    run: Path, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for command in ("explain", "predict"):
        assert main([command, str(run), str(picture), "--out", str(out)]) == 2
        assert "training images of its prototypes are unknown" in capsys.readouterr().err
    assert main(["evaluate", str(run)]) == 2
    assert "does not know its data" in capsys.readouterr().err
    assert not out.exists()
    words = [str(run), str(picture), "--out", str(out), "--method", "similarity"]
    assert main(["saliency", *words]) == 0


def test_an_imported_run_can_be_handed_on(run: Path, picture: Path, tmp_path: Path) -> None:
    model = dp.load(run)
    model.save_pretrained(tmp_path / "copy")
    assert dp.load(tmp_path / "copy").predict(picture) == model.predict(picture)


def test_names_come_from_the_data(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["import", str(file), "--out", str(tmp_path / "run"), "--data", "birds"]
    assert main(words) == 2
    assert "12 class names for 3 classes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_network_that_was_trained_in_parallel(file: Path, tmp_path: Path) -> None:
    state = {f"module.{name}": value for name, value in torch.load(file).items()}
    torch.save(state, tmp_path / "net.pth")
    found = ProtoPNetFile.read(tmp_path / "net.pth")
    assert found.architecture() == "resnet18"
    assert (found.classes, found.dimension, found.patch) == (CLASSES, DIMENSION, (1, 1))


def test_whose_a_prototype_is(file: Path) -> None:
    found = ProtoPNetFile.read(file)
    assert found.owners() == [0, 0, 1, 1, 2, 2]  # a random last layer tells nothing
    pruned = [0, 1, 1, 1, 2]
    layer = torch.full((CLASSES, 5), -0.5)
    layer[pruned, range(5)] = 1.0
    rest = found.trunk, found.shaping, found.prototypes[:5]
    assert ProtoPNetFile(*rest, layer).owners() == pruned
    with pytest.raises(UserError, match="cannot be divided"):
        ProtoPNetFile(*rest, -layer).owners()


def changed(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in {**state, **given}.items() if value is not None}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"prototype_vectors": None}, "not the state dict of a ProtoPNet"),
    ({"add_on_layers__2__bias": None}, "add_on_layers.2.bias is missing"),
    ({"add_on_layers__4__weight": torch.zeros(1)}, "add_on_layers.4.weight is unknown"),
    ({"last_layer__bias": torch.zeros(3)}, "last_layer.bias is unknown"),
    ({"last_layer__weight": torch.zeros(3, 7)}, "the shapes are not those"),
    ({"features__conv1__weight": None}, "no ResNet, VGG, DenseNet or ConvNeXt"),
    ({"features__layer4__1__bn2__bias": None}, "no ResNet, VGG, DenseNet or ConvNeXt"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_files_that_do_not_fit(
    changes: dict[str, Any], message: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(changed(torch.load(file), **changes), tmp_path / "net.pth")
    assert main(["import", str(tmp_path / "net.pth"), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "run").exists()


def test_a_named_backbone_must_be_filled_whole(file: Path, tmp_path: Path) -> None:
    torch.save(changed(torch.load(file), features__layer4__1__bn2__bias=None), tmp_path / "net.pth")
    settings = ImportSettings(backbone="timm:resnet18", image_size=SIZE)
    with pytest.raises(UserError, match="1 missing"):
        import_network(tmp_path / "net.pth", tmp_path / "run", settings)
    with pytest.raises(UserError, match="name another --backbone"):
        import_network(file, tmp_path / "run", ImportSettings(backbone="timm:resnet50", image_size=SIZE))


def test_code_in_a_file_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(nn.Linear(1, 1), tmp_path / "net.pth")  # a pickled module, as ProtoPNet's own code saves
    assert main(["import", str(tmp_path / "net.pth"), "--out", str(tmp_path / "run")]) == 2
    assert "holds Python objects" in capsys.readouterr().err
