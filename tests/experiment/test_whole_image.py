"""The image as a whole beside its parts: one more region and prototype of a class, with its own weight."""

import pytest
import torch

from dprotonet.data.base import Sample
from dprotonet.encoder.part_maps import WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.prototypes.parts import WHOLE, part_under
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.inference.losses import without_some_parts
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import DProtoNet


def made(**network: object) -> DProtoNet:
    tables = {"recipe": "parts", "network": {"backbone": "timm:resnet18:none", "dimension": 8, **network}}
    config = config_from(tables).network
    found = build_network(config, classes=3, image_size=64, pretrained=False)
    assert isinstance(found, DProtoNet)
    return found


def test_it_has_a_prototype_of_every_class_and_its_weight() -> None:
    found = made(parts=4, whole=3.0)
    assignment, regions = found.prototypes.assignment, found.encoder.regions
    assert isinstance(assignment, PartRegion)
    assert isinstance(regions, Parts)
    assert isinstance(found.encoder.shaping, WithParts)
    assert (regions.count, len(found.prototypes.vectors)) == (5, 15)
    for label in range(3):
        mine = found.prototype_class == label
        assert assignment.part[mine].tolist() == [0, 1, 2, 3, 4]
        assert found.head.weight[label, mine].tolist() == [2, 2, 2, 2, 6]
        assert not found.head.weight[label, ~mine].any()
    logits = found.eval()(torch.rand(2, 3, 64, 64))
    assert logits.shape == (2, 3)


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({"whole": 4.0}, (10, 11)),
        ({}, (10, 10)),
        ({"whole": 4.0, "prototypes_per_class": 6}, (5, 6)),
        ({"whole": 4.0, "prototypes_per_class": 1}, (1, 1)),
    ],
)
def test_it_takes_one_of_the_prototypes(given: dict[str, object], counts: tuple[int, int]) -> None:
    network = config_from({"recipe": "parts", "network": given}).network
    assert (network.parts, network.prototypes_per_class) == counts


def test_it_is_called_what_it_is() -> None:
    mask = torch.zeros(8, 8, dtype=torch.bool)
    mask[:4] = True
    sample = Sample(torch.rand(3, 8, 8), 0, "one", parts={"wing": mask})
    assert part_under(sample, Place(0.0, 0.0, 1.0, 1.0)) == WHOLE
    assert part_under(sample, Place(0.0, 0.0, 0.5, 0.5)) == "wing"


def test_scores_lose_whole_parts_and_keep_their_expected_value() -> None:
    torch.manual_seed(0)
    part = torch.tensor([0, 1, 2, 0, 1, 2])
    scores = torch.rand(4000, 6) + 1
    found = without_some_parts(scores, part, 0.25)
    ratio = found / scores
    assert torch.equal(ratio[:, :3] > 0, ratio[:, 3:] > 0)  # a part is dropped in all classes, or in none
    torch.testing.assert_close(ratio[ratio > 0], torch.full_like(ratio[ratio > 0], 4 / 3))
    torch.testing.assert_close(ratio.mean(dim=0), torch.ones(6), atol=0.05, rtol=0)
