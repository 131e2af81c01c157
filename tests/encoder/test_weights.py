"""Local weights: read without running code, matched by name or by order, refused if they misfit."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dprotonet.compat import import_guarded
from dprotonet.encoder.backbone import load_backbone
from dprotonet.encoder.weights import read_state
from dprotonet.errors import UserError

REAL = Path(__file__).resolve().parents[3] / "shared" / "weights"  # real files, beside the project


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny models: threads would spend their time waiting for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def original() -> nn.Module:
    torch.manual_seed(1)
    return import_guarded("timm").create_model("test_resnet")


def _loaded(path, name="test_resnet", **settings):
    return load_backbone(f"timm:{name}:{path}", **({"image_size": 64} | settings))


def _same(trunk, original):
    theirs = original.state_dict()
    return all(torch.equal(value, theirs[key]) for key, value in trunk.state_dict().items())


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".safetensors"])
def test_every_extension_loads(original, tmp_path, suffix):
    path = tmp_path / f"with:colon{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(original.state_dict(), path)
    backbone = _loaded(path)
    assert _same(backbone.trunk, original)
    assert backbone.report.share == 1
    assert set(backbone.report.unexpected) == {"fc.weight", "fc.bias"}
    assert "\n" not in str(backbone.report)


@pytest.mark.parametrize("key", ["state_dict", "model", "state_dict_ema", "module"])
@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "features.", "encoder.backbone.trunk."])
def test_wrappings_are_taken_off(original, tmp_path, key, prefix):
    state = {prefix + name: value for name, value in original.state_dict().items()}
    torch.save({key: state | {"other.weight": torch.ones(3)}, "epoch": 3}, tmp_path / "w.pth")
    assert _same(_loaded(tmp_path / "w.pth").trunk, original)


def test_half_precision_becomes_single(original, tmp_path):
    torch.save({name: value.half() for name, value in original.state_dict().items()}, tmp_path / "w.pth")
    backbone = _loaded(tmp_path / "w.pth")
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}


def test_two_copies_of_the_trunk_are_ambiguous(original, tmp_path):
    state = original.state_dict()
    both = {f"{who}.{name}": value for who in ("student", "teacher") for name, value in state.items()}
    torch.save(both, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"2 times .student\., teacher"):
        _loaded(tmp_path / "w.pth")


def test_colour_weights_are_summed_for_grey_images(original, tmp_path):
    torch.save(original.state_dict(), tmp_path / "w.pth")
    trunk = _loaded(tmp_path / "w.pth", in_channels=1).trunk
    first = trunk.pretrained_cfg["first_conv"] + ".weight"
    theirs = original.state_dict()[first].sum(dim=1, keepdim=True)
    assert torch.allclose(trunk.state_dict()[first], theirs)


def test_grey_weights_load_into_grey_but_not_into_colour(tmp_path):
    grey = import_guarded("timm").create_model("test_resnet", in_chans=1)
    torch.save(grey.state_dict(), tmp_path / "w.pth")
    assert _same(_loaded(tmp_path / "w.pth", in_channels=1).trunk, grey)
    with pytest.raises(UserError, match="1 of another shape"):
        _loaded(tmp_path / "w.pth")


def test_position_embeddings_are_resized(tmp_path):
    original = import_guarded("timm").create_model("test_vit")
    torch.save(original.state_dict(), tmp_path / "w.pth")
    backbone = _loaded(tmp_path / "w.pth", "test_vit", image_size=64)
    assert backbone.report.share == 1
    assert backbone.trunk.pos_embed.shape[1] < original.pos_embed.shape[1]


TORCHVISION = [
    ("mobilenet_v2", "mobilenetv2_100"),
    ("resnet18", "resnet18"),
    ("densenet121", "densenet121"),
    ("efficientnet_b0", "efficientnet_b0"),
]


@pytest.mark.parametrize(("theirs", "ours"), TORCHVISION, ids=[row[0] for row in TORCHVISION])
def test_torchvision_files_give_torchvision_features(tmp_path, theirs, ours):
    torch.manual_seed(2)
    model = getattr(import_guarded("torchvision").models, theirs)(num_classes=5).eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):  # statistics that would show an exchange of two layers
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    torch.save(
        {name: value for name, value in model.state_dict().items() if value.numel() < 1e7}, tmp_path / "w.pth"
    )
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = _torchvision_features(model, images)
        found = _loaded(tmp_path / "w.pth", ours).eval()(images)
    assert torch.allclose(found, expected, atol=1e-4 * float(expected.abs().max()))


def _torchvision_features(model, images):
    if hasattr(model, "features"):
        features = model.features(images)
        # torchvision applies DenseNet's last ReLU outside of its features
        return features.relu() if "DenseNet" in type(model).__name__ else features
    return nn.Sequential(*list(model.children())[:-2])(images)


def test_old_densenet_names_are_understood(tmp_path):
    original = import_guarded("timm").create_model("densenet121", num_classes=0)
    old = {
        key.replace("norm1", "norm.1").replace("conv2", "conv.2"): v
        for key, v in original.state_dict().items()
    }
    save_file(old, tmp_path / "w.safetensors")
    assert _same(_loaded(tmp_path / "w.safetensors", "densenet121").trunk, original)


def test_an_order_that_was_forgotten_is_not_guessed(original, tmp_path):
    # Sorted names that are words, not numbers, say nothing about the order of the layers.
    state, words = {}, {}
    for key, value in original.state_dict().items():
        module, _, kind = key.rpartition(".")
        word = words.setdefault(module, f"layer_{chr(97 + len(words) // 26)}{chr(97 + len(words) % 26)}")
        state[f"{module if module == 'fc' else word}.{kind}"] = value
    torch.save(state, tmp_path / "kept.pth")
    assert _same(_loaded(tmp_path / "kept.pth").trunk, original)
    save_file(state, tmp_path / "lost.safetensors")
    with pytest.raises(UserError, match=r"0 of \d+ entries matched"):
        _loaded(tmp_path / "lost.safetensors")


def test_another_architecture_is_refused_with_examples(original, tmp_path):
    torch.save(original.state_dict(), tmp_path / "w.pth")
    with pytest.raises(
        UserError, match=r"does not fit: .*missing.*wants e\.g\. .*the file has e\.g\. "
    ) as raised:
        _loaded(tmp_path / "w.pth", "test_convnext")
    assert "\n" not in str(raised.value)


class _Evil:
    def __reduce__(self):
        return (print, ("code ran",))


def _cut(path, original):
    torch.save(original.state_dict(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _cut_safetensors(path, original):
    save_file(original.state_dict(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BAD_FILES = [
    ("cut.pth", _cut, "damaged"),
    ("cut.safetensors", _cut_safetensors, "damaged"),
    ("empty.pth", lambda path, _: path.touch(), "damaged"),
    ("text.bin", lambda path, _: path.write_text("hello there"), "damaged"),
    ("code.pth", lambda path, _: torch.save({"state_dict": _Evil()}, path), "Python objects"),
    ("old.pt", lambda path, _: path.write_bytes(pickle.dumps(_Evil())), "Python objects|damaged"),
    ("model.pt", lambda path, model: torch.save(model, path), "Python objects"),
    ("folder.pth", lambda path, _: path.mkdir(), "is a directory"),
    ("nothing.pth", lambda path, _: None, "does not exist"),
    ("w.onnx", lambda path, _: path.touch(), "unknown extension"),
    ("list.pth", lambda path, _: torch.save([1, 2], path), "holds no state dict"),
    ("epoch.pth", lambda path, _: torch.save({"epoch": 3}, path), "it has: epoch"),
]


@pytest.mark.parametrize(("name", "make", "message"), BAD_FILES, ids=[row[0] for row in BAD_FILES])
def test_bad_files_are_one_line_errors_and_run_nothing(original, tmp_path, capsys, name, make, message):
    make(tmp_path / name, original)
    with pytest.raises(UserError, match=message) as raised:
        read_state(tmp_path / name)
    assert "\n" not in str(raised.value)
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mobilenetv2_100", "mobilenet_v2_features_torchvision.safetensors"),
        ("vgg16", "vgg16_features_torchvision_fp16.safetensors"),
    ],
)
def test_real_torchvision_files_give_torchvision_features(name, file):
    if not (REAL / file).exists():
        pytest.skip(f"{REAL / file} is not on this machine")
    models = import_guarded("torchvision").models
    vgg = models.vgg.make_layers(models.vgg.cfgs["D"])  # without the 120 million weights of its classifier
    theirs = nn.ModuleDict({"features": vgg if name == "vgg16" else models.mobilenet_v2().features}).eval()
    theirs.load_state_dict(read_state(REAL / file))
    backbone = _loaded(REAL / file, name).eval()
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        expected = theirs["features"](images)
        assert torch.allclose(backbone(images), expected, atol=1e-4 * float(expected.abs().max()))
    assert backbone.report.share == 1
