"""timm models with their heads: whose weights, how many classes, and files that lack a head."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from dprotonet.compat import import_guarded
from dprotonet.encoder.backbone import BackboneSpec, load_backbone
from dprotonet.encoder.classifier import load_classifier
from dprotonet.encoder.weights import packaged_state
from dprotonet.errors import UserError


def saved(name: str, path: Path, *, prefix: str = "", classes: int = 7) -> tuple[torch.nn.Module, Path]:
    model = import_guarded("timm").create_model(name, num_classes=classes).eval()
    torch.save({"state_dict": {prefix + key: value for key, value in model.state_dict().items()}}, path)
    return model, path


@torch.no_grad()
def logits(model: torch.nn.Module, size: int) -> Tensor:
    values: Tensor = model(torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)))
    return values


def test_the_packaged_network_has_its_head() -> None:
    found = load_classifier(BackboneSpec.parse("timm:tf_efficientnet_lite0:packaged"))
    assert (found.classes, found.size, found.channels) == (1000, 224, 3)
    assert found.mean == found.std == (0.5, 0.5, 0.5)
    images, state = torch.rand(1, 3, 64, 64), packaged_state()
    with torch.no_grad():
        pooled = load_backbone("timm:tf_efficientnet_lite0:packaged").eval()(images).mean(dim=(2, 3))
        expected = pooled @ state["_fc.weight"].T + state["_fc.bias"]
        assert torch.allclose(found.module(images), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext", "test_efficientnet"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_file_brings_its_number_of_classes(name: str, prefix: str, tmp_path: Path) -> None:
    model, path = saved(name, tmp_path / "model.pth", prefix=prefix)
    found = load_classifier(BackboneSpec(name, str(path)))
    assert found.classes == 7
    assert not found.module.training
    assert torch.equal(logits(found.module, found.size), logits(model, found.size))


def test_a_file_without_a_head_is_refused(tmp_path: Path) -> None:
    _, path = saved("test_resnet", tmp_path / "trunk.pth", classes=0)
    with pytest.raises(UserError, match="no classifier that fits test_resnet"):
        load_classifier(BackboneSpec("test_resnet", str(path)))


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    _, path = saved("test_vit", tmp_path / "vit.pth")
    with pytest.raises(UserError, match="does not fit"):
        load_classifier(BackboneSpec("test_resnet", str(path)))


def test_a_model_of_features_only_is_refused() -> None:
    with pytest.raises(UserError, match="no classes, only features"):
        load_classifier(BackboneSpec("vit_small_patch14_dinov2", "none"))
