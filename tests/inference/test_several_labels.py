"""The loss of several labels against loops, the head's bias, and whose prototypes are whose."""

import math

import pytest
import torch
from torch import Tensor

from dprotonet.inference.own import allowed_prototypes, members, own_prototypes
from dprotonet.inference.projection import SourceSearch
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.several_labels import LabelHead, LabelLoss, label_cluster_loss
from dprotonet.inference.similarity import LogSimilarity

OWNER = torch.tensor([0, 0, 1, 1, 2, 2])
LABELS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]])


@pytest.fixture
def distances() -> Tensor:
    return torch.rand(4, 6, generator=torch.Generator().manual_seed(0))


def test_own_prototypes_are_those_of_every_label() -> None:
    assert own_prototypes(LABELS, OWNER).int().tolist() == [
        [1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
        [0, 0, 1, 1, 0, 0],
    ]
    allowed = torch.arange(3).unsqueeze(1) == OWNER
    assert torch.equal(allowed_prototypes(LABELS, allowed), own_prototypes(LABELS, OWNER))
    assert members(LABELS, 1).tolist() == [False, False, True, True]


def test_cluster_is_over_pairs_of_image_and_label(distances: Tensor) -> None:
    pairs = [
        min(distances[image, p].item() for p in range(6) if OWNER[p] == label)
        for image in range(4)
        for label in range(3)
        if LABELS[image, label]
    ]
    assert label_cluster_loss(distances, LABELS, OWNER).item() == pytest.approx(sum(pairs) / len(pairs))


def test_cluster_by_parts_has_no_stand_in(distances: Tensor) -> None:
    part = torch.tensor([0, 1, 0, 1, 0, 1])
    own = own_prototypes(LABELS, OWNER)  # one prototype for each label and part
    found = label_cluster_loss(distances, LABELS, OWNER, part)
    assert found.item() == pytest.approx(distances[own].mean().item())


def test_a_batch_without_labels_has_no_cluster(distances: Tensor) -> None:
    assert label_cluster_loss(distances, torch.zeros(4, 3), OWNER).item() == 0


def test_separation_is_from_labels_that_are_absent(distances: Tensor) -> None:
    far = LabelLoss().far(distances, LABELS, OWNER)
    nearest = [
        min(distances[image, p].item() for p in range(6) if not LABELS[image, OWNER[p]])
        for image in (0, 1, 3)
    ]
    assert far.item() == pytest.approx(sum(nearest) / 3)
    assert LabelLoss().far(distances, torch.ones(4, 3), OWNER).item() == 0


def test_entropy_by_hand() -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0]])
    labels = torch.tensor([[1.0, 0.0, 1.0]])
    weights = (3.0, 1.0, 0.5)
    total = 0.0
    for z, y, w in zip(logits[0].tolist(), labels[0].tolist(), weights, strict=True):
        p = 1 / (1 + math.exp(-z))
        total -= w * y * math.log(p) + (1 - y) * math.log(1 - p)
    loss = LabelLoss(class_weight=weights)
    assert loss.entropy(logits, labels).item() == pytest.approx(total / 3, rel=1e-5)


def test_right_counts_labels() -> None:
    logits = torch.tensor([[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]])
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    assert LabelLoss().right(logits, labels) == pytest.approx(1 + 1 / 3)


def test_evidence_and_bias_make_the_logit() -> None:
    head = LabelHead(OWNER)
    torch.nn.init.constant_(head.bias, -1.5)
    scores = torch.rand(2, 6)
    said = head.contributions(scores, torch.tensor([1, 2])).sum(dim=1) + head.bias[[1, 2]]
    assert torch.allclose(said, head(scores)[[0, 1], [1, 2]])


def test_a_step_leaves_no_weight_below_0_nor_to_other_labels() -> None:
    head = LabelHead(OWNER)
    with torch.no_grad():
        head.weight.copy_(torch.randn(3, 6, generator=torch.Generator().manual_seed(0)))
    before = head.weight.clone()
    head.after_step()
    own = torch.arange(3).unsqueeze(1) == OWNER
    assert torch.equal(head.weight, torch.where(own, before.clamp_min(0), 0.0))
    kept = torch.tensor([True, False, True, True, True, True])
    assert head.narrowed(kept)(torch.ones(1, 5)).shape == (1, 3)
    assert "own" not in head.state_dict()


def test_sources_have_the_label() -> None:
    """The nearest image of all has not the label, so the next one is the source."""
    prototypes = Prototypes(2, 1, 2, similarity=LogSimilarity())
    prototypes.vectors.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    regions = torch.tensor([[[1.0, 0.0]], [[0.9, 0.1]], [[0.0, 0.5]]])
    labels = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 1.0]])
    search = SourceSearch(prototypes)
    search.update(regions, labels, torch.arange(3))
    assert search.sources().index.flatten().tolist() == [1, 2]
