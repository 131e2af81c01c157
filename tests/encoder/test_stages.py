"""A backbone in two halves is the whole backbone; what cannot be cut is refused by name."""

import pytest
import torch

from dprotonet.encoder.backbone import Backbone, load_backbone
from dprotonet.encoder.levels import JoinedLevels
from dprotonet.encoder.stages import divided
from dprotonet.errors import UserError

NAMES = ("tf_efficientnet_lite0", "resnet10t", "vgg11", "densenet121", "convnext_atto")


def backbone(name: str, levels: int = 1) -> Backbone:
    torch.manual_seed(0)
    found = load_backbone(f"timm:{name}:none", image_size=64)
    return (found if levels == 1 else JoinedLevels(found, levels, image_size=64)).eval()


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_the_halves_make_the_whole(name: str, levels: int) -> None:
    whole = backbone(name, levels)
    images = torch.randn(2, 3, 64, 64)
    first, rest = divided(whole, 2, image_size=64)
    torch.testing.assert_close(rest(first(images)), whole(images))
    own, others = ({id(part) for part in half.parameters()} for half in (first, rest))
    assert own
    assert others
    assert not own & others
    assert own | others == {id(part) for part in whole.parameters()}


def test_parameters_are_shared_and_the_whole_stays_whole() -> None:
    whole = backbone("resnet10t")
    names = set(whole.state_dict())
    first, rest = divided(whole, 3, image_size=64)
    assert set(whole.state_dict()) == names
    images = torch.randn(1, 3, 64, 64)
    before = whole(images)
    with torch.no_grad():
        for parameter in rest.parameters():
            parameter.mul_(1.1)
    assert not torch.allclose(before, whole(images))
    torch.testing.assert_close(rest(first(images)), whole(images))


def test_a_step_of_the_rest_leaves_the_first_stages() -> None:
    whole = backbone("tf_efficientnet_lite0")
    first, rest = divided(whole, 3, image_size=64)
    first.requires_grad_(False)
    rest(first(torch.randn(2, 3, 64, 64))).square().mean().backward()
    assert all(parameter.grad is None for parameter in first.parameters())
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in rest.parameters())


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "resnet10t", "convnext_atto"])
def test_the_rest_may_recompute_its_activations(name: str, levels: int) -> None:
    """Trunks that do so go through the layers of a stage themselves, those left out included."""
    whole = backbone(name, levels)
    first, rest = divided(whole, 2, image_size=64)
    first.requires_grad_(False)
    images = torch.randn(2, 3, 64, 64)
    gradients = []
    for recomputes in (False, True):
        rest.trunk.set_grad_checkpointing(recomputes)  # type: ignore[operator]
        rest.zero_grad()
        rest(first(images)).square().mean().backward()
        gradients.append([part.grad.clone() for part in rest.parameters() if part.grad is not None])
    assert gradients[0]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("stages", [0, 5, 9])
def test_some_stages_must_learn(stages: int) -> None:
    with pytest.raises(UserError, match="--mode frozen"):
        divided(backbone("tf_efficientnet_lite0"), stages, image_size=64)


def test_tokens_are_not_divided() -> None:
    tokens = load_backbone("timm:vit_tiny_patch16_224:none", image_size=64).eval()
    with pytest.raises(UserError, match="--frozen-stages 0"):
        divided(tokens, 3, image_size=64)
