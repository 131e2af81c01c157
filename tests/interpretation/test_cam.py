"""The rivals run in silence, and grad-cam is left as it was."""

import sys
import threading

import pytest
import torch
from tests.conftest import tiny_network
from tests.interpretation.conftest import Net
from torch import Tensor, nn

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.errors import UserError
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import PresentCosine
from dprotonet.interpretation.cam import CAM, CAM_CLASSES
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.network import DProtoNet

IMAGES = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
BARRED = ["scorecam", "ablationcam"]


def rivals(model: Net, name: str) -> torch.Tensor:
    cam = CAM(model, name, internal_batch_size=4, layer=rectifier(model))
    return torch.stack([item.raw for item in cam.explain(IMAGES, ClassNode(model, [0, 3]))])


def rectifier(model: Net) -> nn.Module:
    """A layer whose map is nowhere negative: there the package's ablation is the paper's."""
    return next(layer for layer in model.modules() if isinstance(layer, nn.ReLU))


@pytest.mark.parametrize("name", BARRED)
def test_the_package_itself_shows_bars_and_we_do_not(
    name: str, model: Net, capfd: pytest.CaptureFixture[str]
) -> None:
    found = rivals(model, name)
    assert capfd.readouterr() == ("", "")
    package = sys.modules["pytorch_grad_cam"]
    loud = getattr(package, CAM_CLASSES[name])(model=model, target_layers=[rectifier(model)])
    # By a negative score Ablation-CAM would divide as well, and turn its map round: ours are raised.
    first, second = ((-2 * model(IMAGES)[row, label]).clamp_min(0) for row, label in ((0, 0), (1, 3)))
    targets = [lambda scores: scores[0] + first, lambda scores: scores[3] + second]
    expected = torch.cat(
        [
            torch.from_numpy(loud(input_tensor=image.unsqueeze(0), targets=[target]))
            for image, target in zip(IMAGES, targets, strict=True)
        ]
    )
    assert "100%" in capfd.readouterr().err  # the bars are still there for whoever wants them
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", BARRED)
def test_two_threads_do_not_meet(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Ablation-CAM's default layer, which holds the map at work, is one for all of them."""
    models, found = [Net().eval() for _ in range(4)], {}
    expected = rivals(Net().eval(), name)

    def explain(number: int) -> None:
        found[number] = rivals(models[number], name)

    threads = [threading.Thread(target=explain, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.allclose(maps, expected, atol=1e-5) for maps in found.values())
    assert capfd.readouterr().err == ""


class Distances(nn.Module):
    """Features of both signs, and classes by their distance to a vector: what a prototype network does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 8, 1))
        self.vectors = nn.Parameter(torch.randn(4, 8))

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.features(images).mean(dim=(2, 3))
        return 10 - (pooled.unsqueeze(1) - self.vectors).square().sum(dim=2)


def test_ablation_says_something_of_a_network_that_measures_distances() -> None:
    """At a map with negative values the package sets channels to -1e7, and distances see nothing but that."""
    model = Distances().eval()
    (found,) = CAM(model, "ablationcam").explain(IMAGES[:1], ClassNode(model, [1]))
    with torch.no_grad():
        maps = model.features[:2](IMAGES[:1])
        before = model(IMAGES[:1])[0, 1]
        heat = torch.zeros_like(maps[0, 0])
        for channel in range(6):
            without = maps.clone()
            without[:, channel] = 0
            after = 10 - (model.features[2](without).mean(dim=(2, 3)) - model.vectors[1]).square().sum()
            heat += (before - after) / before * maps[0, channel]
    enlarged = torch.nn.functional.interpolate(heat.relu()[None, None], (24, 24), mode="bilinear")[0, 0]
    assert torch.corrcoef(torch.stack([found.raw.flatten(), enlarged.flatten()]))[0, 1] > 0.98


@pytest.mark.parametrize("label", [99, -1])
def test_a_class_that_a_prototype_network_lacks_is_named(label: int) -> None:
    network = tiny_network().eval()
    with pytest.raises(UserError, match=f"no class {label}"):
        CAM(network, "gradcam").explain(torch.randn(1, 3, 32, 32), ClassNode(network, [label]))


def test_the_layer_is_found_along_the_logit() -> None:
    """Not along what a network offers the decoder: that may look at few of the places."""
    model, blind = Distances().eval(), Distances().eval()
    blind.load_state_dict(model.state_dict())
    blind.agreement = lambda images, label: images.sum(dim=(1, 2, 3))  # type: ignore[assignment]
    maps = [CAM(net, "gradcam").explain(IMAGES[:1], ClassNode(net, [1]))[0].raw for net in (model, blind)]
    assert torch.equal(*maps)


def test_a_map_after_a_relu_is_taken_where_there_is_one() -> None:
    model = Distances().eval()
    (chosen,) = CAM(model, "gradcam").explain(IMAGES[:1], ClassNode(model, [1]))
    (expected,) = CAM(model, "gradcam", layer=model.features[1]).explain(IMAGES[:1], ClassNode(model, [1]))
    assert torch.allclose(chosen.raw, expected.raw)


def with_parts(seed: int = 0) -> DProtoNet:
    """Features of both signs behind a ReLU, and four parts of them."""
    torch.manual_seed(seed)
    backbone = nn.Sequential(nn.Conv2d(3, 6, 3, stride=4), nn.ReLU(), nn.Conv2d(6, 8, 1))
    prototypes = Prototypes(3, 4, 8, similarity=PresentCosine(), assignment=PartRegion(torch.arange(12) % 4))
    nn.init.normal_(prototypes.vectors)
    encoder = Encoder(backbone, WithParts(PartMaps(8, 4)), Parts(8, 8, 4, (6, 6)))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()


@pytest.mark.parametrize("name", CAM_CLASSES)
def test_shares_of_parts_are_no_feature_map(name: str) -> None:
    """They are nowhere negative, as a map after a ReLU is; without some of them the logit is not a number."""
    network = with_parts()
    node, layer = ClassNode(network, [1]), network.encoder.backbone[1]  # type: ignore[index]
    (chosen,) = CAM(network, name).explain(IMAGES[:1], node)
    (expected,) = CAM(network, name, layer=layer).explain(IMAGES[:1], node)
    assert chosen.raw.isfinite().all()
    assert torch.allclose(chosen.raw, expected.raw)


def test_features_beside_shares_of_parts_are_no_map_of_features_either() -> None:
    """Where no map is free of negative values."""
    network = with_parts()
    network.encoder.backbone[1] = nn.Identity()  # type: ignore[index, operator]
    layer = network.encoder.backbone
    (chosen,) = CAM(network, "gradcam").explain(IMAGES[:1], ClassNode(network, [1]))
    (expected,) = CAM(network, "gradcam", layer=layer).explain(IMAGES[:1], ClassNode(network, [1]))
    assert torch.allclose(chosen.raw, expected.raw)


def test_a_stem_sees_an_ablated_image_once_and_what_follows_is_counted(model: Net) -> None:
    stem = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
    node, layer = ClassNode(model, [0, 3]), rectifier(model)
    plain = CAM(model, "ablationcam", internal_batch_size=4, layer=layer).explain(IMAGES, node)
    ran: dict[str, list[int]] = {"stem": [], "head": []}
    handle = model.head.register_forward_pre_hook(lambda _module, inputs: ran["head"].append(len(inputs[0])))
    own = stem.forward

    def counted(images: Tensor) -> Tensor:
        ran["stem"].append(len(images))
        return own(images)

    vars(stem)["forward"] = counted
    known = CAM(model, "ablationcam", internal_batch_size=4, layer=layer, stem=stem).explain(IMAGES, node)
    handle.remove()
    assert vars(stem)["forward"] is counted
    assert ran["stem"] == [1, 1]
    assert all(torch.equal(one.raw, other.raw) for one, other in zip(plain, known, strict=True))
    assert [item.passes.forward for item in known] == [sum(ran["head"]) // 2] * 2
    assert known[0].passes == plain[0].passes
    assert plain[0].passes.forward > 4


def test_a_stem_that_fails_comes_back_as_it_was(model: Net) -> None:
    stem = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
    own = stem.forward
    vars(stem)["forward"] = own  # as some packages wrap a module
    with pytest.raises(UserError, match="no class 99"):
        CAM(model, "ablationcam", internal_batch_size=4, stem=stem).explain(IMAGES, ClassNode(model, [0, 99]))
    assert vars(stem)["forward"] is own


def test_a_stem_that_holds_the_layer_runs_every_time(model: Net) -> None:
    node, layer = ClassNode(model, [0, 3]), rectifier(model)
    plain = CAM(model, "ablationcam", internal_batch_size=4, layer=layer).explain(IMAGES, node)
    held = CAM(model, "ablationcam", internal_batch_size=4, layer=layer, stem=layer).explain(IMAGES, node)
    assert all(torch.equal(one.raw, other.raw) for one, other in zip(plain, held, strict=True))
    assert held[0].passes == plain[0].passes
