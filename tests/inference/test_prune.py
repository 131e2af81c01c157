"""Pruning: the field's loop once more, what is left of the network, and classes that would fall silent."""

import pytest
import torch
from tests.conftest import tiny_network
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.prune import NearestImages, PruneRule, kept_prototypes, pruned
from dprotonet.inference.region_assignment import own_region
from dprotonet.inference.similarity import LogSimilarity
from dprotonet.network import DProtoNet

OWNER = torch.arange(4).repeat_interleave(5)


@pytest.fixture
def distances() -> Tensor:
    return torch.rand(50, len(OWNER), generator=torch.Generator().manual_seed(0))


LABELS = torch.arange(50) % 4


def literal_counts(distances: Tensor, nearest: int) -> list[int]:
    """For every prototype: all images by distance, the first few of them, those of its class."""
    counts = []
    for number, label in enumerate(OWNER.tolist()):
        order = sorted(range(len(distances)), key=lambda row: float(distances[row, number]))
        counts.append(sum(int(LABELS[row]) == label for row in order[:nearest]))
    return counts


@pytest.mark.parametrize("batch", [1, 7, 50])
@pytest.mark.parametrize("nearest", [1, 6])
def test_counts_are_those_of_the_loop(distances: Tensor, nearest: int, batch: int) -> None:
    found = NearestImages(len(OWNER), nearest=nearest)
    for rows, labels in zip(distances.split(batch), LABELS.split(batch), strict=True):
        found.update(rows, labels)
    assert found.of_own_class(OWNER).tolist() == literal_counts(distances, nearest)
    order = distances.sort(dim=0)
    torch.testing.assert_close(found.distances, order.values[:nearest].T)
    assert torch.equal(found.index, order.indices[:nearest].T)
    assert torch.equal(found.labels, LABELS[found.index])


def test_fewer_images_than_asked_for(distances: Tensor) -> None:
    found = NearestImages(len(OWNER), nearest=6)
    found.update(distances[:4], LABELS[:4])
    assert found.of_own_class(OWNER).tolist() == [1] * len(OWNER)


def test_the_first_of_the_nearest(distances: Tensor) -> None:
    found = NearestImages(len(OWNER), nearest=6)
    found.update(distances, LABELS)
    among = torch.arange(len(OWNER)) % 6 + 1
    wanted = [literal_counts(distances, first)[number] for number, first in enumerate(among.tolist())]
    assert found.of_own_class(OWNER, among).tolist() == wanted


def test_three_of_six_is_enough() -> None:
    own = torch.tensor([3, 2, 6, 0, 4])
    kept = kept_prototypes(own, torch.zeros(5, dtype=torch.long))
    assert kept.tolist() == [True, False, True, False, True]


def test_a_class_keeps_its_best_prototype() -> None:
    own, owner = torch.tensor([3, 5, 1, 2, 0]), torch.tensor([0, 0, 1, 1, 2])
    assert kept_prototypes(own, owner).tolist() == [True, True, False, True, True]


@torch.no_grad()
def test_what_is_left_is_unchanged() -> None:
    network = tiny_network(per_class=3).eval()
    network.head.weight.add_(torch.rand(network.head.weight.shape))
    kept = torch.tensor([True, False, True, True, False, False, True, True, True])
    parts = pruned(network.prototypes, network.head, kept)
    smaller = DProtoNet(network.encoder, parts.prototypes, parts.head).eval()
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before, after = network.evidence(images), smaller.evidence(images)
    assert torch.equal(after.scores, before.scores[:, kept])
    assert torch.equal(smaller.prototype_class, network.prototype_class[kept])
    torch.testing.assert_close(after.logits, before.scores[:, kept] @ network.head.weight[:, kept].T)
    assert len(network.prototypes.vectors) == 9
    smaller.prototypes.vectors.zero_()
    assert network.prototypes.vectors.any()


def test_regions_of_their_own_are_not_pruned() -> None:
    prototypes = Prototypes(2, 1, 3, similarity=LogSimilarity(), assignment=own_region)
    with pytest.raises(UserError, match="cannot be pruned"):
        pruned(prototypes, Head(prototypes.prototype_class), torch.tensor([True, False]))


@pytest.mark.parametrize(("nearest", "least"), [(6, 0), (6, 7), (0, 0)])
def test_rules_that_make_no_sense(nearest: int, least: int) -> None:
    with pytest.raises(UserError, match="least"):
        PruneRule(nearest, least)


def test_no_images_at_all() -> None:
    with pytest.raises(UserError, match="nearest is 0"):
        NearestImages(3, nearest=0)
