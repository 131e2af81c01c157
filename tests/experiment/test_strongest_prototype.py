"""`mdm-prototype`: the decoder at the region of the prototype that counts most for the asked class."""

import pytest
import torch
from tests.conftest import tiny_network
from torch import Tensor, nn

from dprotonet.data.base import Sample
from dprotonet.data.transforms import Normalise
from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import Case, check_method, method
from dprotonet.experiment.explaining.explainers import strongest_prototype
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.inference.region_assignment import own_region
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import RegionNode
from dprotonet.network import DProtoNet

NAME = "mdm-prototype:paper,iterations=3"


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(7))


def network_of_mixed_weights() -> DProtoNet:
    """A network in which foreign prototypes may contribute more than the class's own."""
    network = tiny_network().eval()
    nn.init.uniform_(network.head.weight, -1, 2)
    return network


def classifier_of(network: nn.Module) -> Classifier:
    return Classifier("tiny", network, ("a", "b", "c"), 32, Normalise((0.5,) * 3, (0.5,) * 3))


def case_of(inputs: Tensor, label: int) -> Case:
    sample = Sample(torch.zeros(3, 32, 32, dtype=torch.uint8), label, "one.png")
    return Case(0, sample, inputs, torch.tensor([label]))


def test_the_strongest_of_the_class_by_loops_over_everything() -> None:
    network, seen, labels = network_of_mixed_weights(), images(4), torch.tensor([0, 1, 2, 1])
    node = strongest_prototype(network, seen, labels)
    with torch.no_grad():
        regions, scores = network.encoder(seen), network.evidence(seen).scores
    for row, label in enumerate(labels.tolist()):
        best, number = -float("inf"), -1
        for prototype in range(6):
            contribution = float(scores[row, prototype] * network.head.weight[label, prototype].detach())
            if int(network.prototype_class[prototype]) == label and contribution > best:
                best, number = contribution, prototype
        gaps = [float((z - network.prototypes.vectors[number].detach()).square().sum()) for z in regions[row]]
        assert int(node.region[row]) == gaps.index(min(gaps))
        assert node.name(row) == f"prototype {number} in the image"
    assert node.target(torch.arange(4)) is None  # z_j(x) itself is kept, Eq. (14)


def test_a_prototype_that_pools_for_itself_is_found_in_its_own_region() -> None:
    network = network_of_mixed_weights()
    network.encoder.regions.masks = network.encoder.regions.masks[:6]  # type: ignore[union-attr,index]
    network.prototypes.assignment = own_region
    node = strongest_prototype(network, images(3), torch.tensor([2, 0, 1]))
    assert [int(network.prototype_class[region]) for region in node.region] == [2, 0, 1]


def test_the_method_gives_the_decoders_map_at_that_node_and_counts_the_pass_before_it() -> None:
    network, inputs = network_of_mixed_weights(), images(1)
    numbers = preset("paper", iterations=3)
    region = strongest_prototype(network, inputs, torch.tensor([1])).region
    (wanted,) = MDM(network, preset=numbers).explain(inputs, RegionNode(network.encoder, region))
    chosen = method(NAME, classifier_of(network))
    found = chosen.explain(case_of(inputs, 1))
    assert torch.equal(found.raw, wanted.raw)
    assert torch.equal(found.heatmap, wanted.heatmap)
    assert tuple(found.passes) == (wanted.passes.forward + 1, wanted.passes.backward)
    assert (chosen.settings["preset"], chosen.settings["iterations"]) == ("paper", 3)


def test_a_network_without_prototypes_and_a_class_without_are_told() -> None:
    with pytest.raises(UserError, match="'mdm-prototype:fast' needs a prototype network, and tiny is none"):
        method("mdm-prototype:fast", classifier_of(nn.Linear(2, 2)))
    network = tiny_network().eval()
    network.prototypes.prototype_class.fill_(0)
    with pytest.raises(UserError, match="class 2 has no prototype left"):
        strongest_prototype(network, images(1), torch.tensor([2]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mdm-prototype:slow", "unknown preset 'slow'"),
        ("mdm-prototype:fast,speed=3", "no value 'speed'"),
        ("mdm-prototypes", "unknown method 'mdm-prototypes'"),
    ],
)
def test_wrong_names(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_method(name)
