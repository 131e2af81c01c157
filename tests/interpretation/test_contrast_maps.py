"""Where two classes are told apart: shares that add up to the difference, and heat where it is made."""

import pytest
import torch
from tests.conftest import TinyBackbone, tiny_network
from tests.interpretation.test_contrast_node import CORNERS, GREEN, RED, SIDE, Coloured, hottest, image
from torch import Tensor, nn

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.errors import UserError
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import PresentCosine
from dprotonet.interpretation.contrast_maps import ContrastMaps, _product
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.first_guess import features_on_the_way
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.network import DProtoNet
from dprotonet.ops import upsample

PARTS = 3


def network_of_parts() -> DProtoNet:
    """Six prototypes of three classes, of two parts each, and a head whose weights all differ."""
    torch.manual_seed(0)
    regions = Parts(8, 6, PARTS, (4, 4))
    nn.init.normal_(regions.centre, std=0.1)
    part = torch.tensor([0, 1, 1, 2, 2, 0])
    prototypes = Prototypes(3, 2, 6, similarity=PresentCosine(), assignment=PartRegion(part))
    head = Head(prototypes.prototype_class)
    nn.init.normal_(head.weight)
    return DProtoNet(Encoder(TinyBackbone(), WithParts(PartMaps(8, PARTS)), regions), prototypes, head).eval()


@pytest.fixture
def seen() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_places_add_up_to_the_difference_of_two_logits(seen: Tensor) -> None:
    network = network_of_parts().double()
    label, versus = torch.tensor([2, 0]), torch.tensor([0, 1])
    with torch.no_grad():
        added = network.added_by_places(seen.double(), label, versus)
        logits, back = network(seen.double()), network.added_by_places(seen.double(), versus, label)
    assert added.shape == (2, 4, 4)
    wanted = logits[[0, 1], label] - logits[[0, 1], versus]
    torch.testing.assert_close(added.sum(dim=(1, 2)), wanted, atol=2e-6, rtol=0)  # PresentCosine's own clamp
    torch.testing.assert_close(back, -added)
    assert float(added.abs().min()) > 0


def test_a_network_whose_places_have_no_shares_says_so(seen: Tensor) -> None:
    network = tiny_network().eval()
    assert not network.linear_in_parts
    with pytest.raises(ValueError, match="only if it is linear"):
        network.added_by_places(seen, torch.tensor([0, 0]), torch.tensor([1, 1]))


@pytest.mark.parametrize("green", [0.6, 1.0, 1.6], ids=["red ahead", "level", "green ahead"])
def test_heat_lies_on_both_sides_of_what_differs_and_nowhere_else(green: float) -> None:
    model, picture = Coloured().eval(), image(green=green)
    found = ContrastMaps(model).explain(picture, ContrastNode(model, [RED], GREEN))[0]
    assert hottest(found.raw) == ("red" if green <= 1 else "green")
    assert found.side is not None
    middles = {colour: (top + 8, left + 8) for colour, (top, left) in CORNERS.items()}
    assert float(found.heatmap[middles["blue"]]) == 0
    assert float(found.side[middles["red"]]) > 0 > float(found.side[middles["green"]])
    assert float(found.heatmap[middles["green"]]) == pytest.approx(min(1, green**4), rel=0.2)
    assert 0 <= float(found.heatmap.min()) <= float(found.heatmap.max()) == pytest.approx(1)
    assert "side" in found.maps()
    assert found.passes == (2, 2)


def test_a_mirrored_image_has_the_mirrored_map() -> None:
    model, picture = Coloured().eval(), image(green=0.7)
    node = ContrastNode(model, [RED], GREEN)
    plain, mirrored = (ContrastMaps(model).explain(one, node)[0].raw for one in (picture, picture.flip(-1)))
    torch.testing.assert_close(plain, mirrored.flip(-1))
    assert plain.shape == (SIDE, SIDE)


def test_the_shares_of_a_network_give_the_sides(seen: Tensor) -> None:
    network = network_of_parts()
    label, versus = torch.tensor([1, 0]), torch.tensor([2, 2])
    found = ContrastMaps(network, added=network.added_by_places).explain(
        seen, ContrastNode(network, label, versus)
    )
    with torch.no_grad():
        wanted = upsample(network.added_by_places(seen, label, versus), (32, 32))
    for row, one in enumerate(found):
        assert one.side is not None
        torch.testing.assert_close(one.side, wanted[row])
        assert one.passes == (3, 2)
    (alone,) = ContrastMaps(network).explain(seen[1:], ContrastNode(network, [0], 2))
    torch.testing.assert_close(alone.raw, found[1].raw)


def test_a_place_is_hot_if_it_counts_at_every_level() -> None:
    one, other = torch.tensor([[[4.0, 2.0, 0.0]]]), torch.tensor([[[0.0, 1.0, 8.0]]])
    assert _product([one, other]).tolist() == [[[0, 1, 0]]]
    assert _product([one]).tolist() == [[[1, 0.5, 0]]]
    assert _product([one, torch.zeros(1, 1, 3)]).tolist() == [[[0, 0, 0]]]


class Halving(nn.Module):
    """Maps of stride 4, 8 and 16, then one of stride 8 again; the logits see the last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down = nn.ModuleList(
            [nn.Conv2d(c, 4, 3, stride=s, padding=1) for c, s in ((3, 4), (4, 2), (4, 2))]
        )
        self.up, self.head = nn.Upsample(scale_factor=2), nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        for layer in self.down:
            images = layer(images).relu()
        logits: Tensor = self.head(self.up(images).mean(dim=(2, 3)))
        return logits


def test_levels_are_those_on_the_way_down_and_the_last() -> None:
    """c = Σ features · gradient of each, as plain autograd has it."""
    model = Halving().eval()
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    task = MaskingTask(images, ContrastNode(model, [0], 2), batch=1)
    found = features_on_the_way(task, task.images, task.rows, strides=(8, 16))
    assert [tuple(level.shape) for level in found] == [(1, 8, 8), (1, 4, 4), (1, 8, 8)]
    first = model.down[0](images).relu()
    second = model.down[1](first).detach().requires_grad_(True)
    third = model.down[2](second.relu())
    last = model.up(third.relu())
    logits = model.head(last.mean(dim=(2, 3)))[0]
    gradients = torch.autograd.grad(logits[0] - logits[2], [second, third, last])
    for level, (output, gradient) in zip(
        found, zip((second, third, last), gradients, strict=True), strict=True
    ):
        torch.testing.assert_close(level, (output * gradient).sum(dim=1))


def test_what_is_no_pair_or_has_no_places_is_refused() -> None:
    model = Coloured().eval()
    with pytest.raises(UserError, match="compare two classes"):
        ContrastMaps(model).explain(image(), ClassNode(model, [RED]))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 3))
    with pytest.raises(UserError, match="no feature map with a gradient"):
        ContrastMaps(flat).explain(image(), ContrastNode(flat, [0], 1))
