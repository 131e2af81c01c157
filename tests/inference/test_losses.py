"""Edge cases of the loss: few images, few prototypes, ties."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from dprotonet.inference.losses import PrototypeLoss, cluster_loss, foreign_weight, separation_distance


def test_one_image_and_one_prototype_a_class() -> None:
    distances = torch.tensor([[4.0, 1.0, 9.0]], requires_grad=True)
    logits, weight = torch.tensor([[0.5, 2.0, -1.0]]), torch.tensor([[1.0, -2, 0], [3, 1, 0], [0, 0, 5]])
    terms = PrototypeLoss()(
        logits, distances, torch.tensor([2]), weight=weight, prototype_class=torch.arange(3)
    )
    entropy = cross_entropy(logits, torch.tensor([2]))
    assert (terms.cluster.item(), terms.separation.item(), terms.foreign.item()) == (9, 1, 5)
    torch.testing.assert_close(terms.total, entropy + 0.8 * 9 - 0.08 * 1 + 1e-4 * 5)
    terms.total.backward()
    assert distances.grad is not None
    torch.testing.assert_close(distances.grad, torch.tensor([[0, -0.08, 0.8]]))


def test_only_the_nearest_prototype_of_each_kind_is_moved() -> None:
    distances = torch.tensor([[3.0, 2, 7, 8], [1, 5, 6, 4]], requires_grad=True)
    own = torch.tensor([[True, True, False, False], [False, False, True, True]])
    near, far = cluster_loss(distances, own), separation_distance(distances, own)
    assert (near.item(), far.item()) == ((2 + 4) / 2, (7 + 1) / 2)
    (gradient,) = torch.autograd.grad(near + 10 * far, distances)
    assert gradient.tolist() == [[0, 0.5, 5, 0], [5, 0, 0, 0.5]]


def test_distances_beyond_any_bound_keep_their_gradient() -> None:
    """The field subtracts from a largest distance and saturates there; a minimum does not."""
    distances = torch.tensor([[1e9, 2e9]], requires_grad=True)
    cluster_loss(distances, torch.tensor([[True, False]])).backward()
    assert distances.grad is not None
    assert distances.grad.tolist() == [[1, 0]]


def test_the_order_of_prototypes_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    distances, logits = torch.rand(4, 6, generator=generator), torch.rand(4, 3, generator=generator)
    weight, labels = torch.randn(3, 6, generator=generator), torch.tensor([0, 2, 1, 1])
    classes, order = torch.arange(3).repeat_interleave(2), torch.tensor([4, 1, 5, 0, 2, 3])
    loss = PrototypeLoss()
    first = loss(logits, distances, labels, weight=weight, prototype_class=classes)
    second = loss(
        logits, distances[:, order], labels, weight=weight[:, order], prototype_class=classes[order]
    )
    torch.testing.assert_close(tuple(first), tuple(second))


def test_the_weights_of_the_terms_are_arguments() -> None:
    loss = PrototypeLoss(cluster=2, separation=-3, foreign=5)
    weight = torch.tensor([[7.0, 1], [1, 7]])
    terms = loss(
        torch.zeros(1, 2),
        torch.tensor([[0.25, 0.5]]),
        torch.tensor([0]),
        weight=weight,
        prototype_class=torch.arange(2),
    )
    assert terms.total.item() == pytest.approx(
        torch.log(torch.tensor(2.0)).item() + 2 * 0.25 - 3 * 0.5 + 5 * 2
    )


def test_foreign_weight_leaves_the_own_class_alone() -> None:
    weight = torch.tensor([[2.0, -3, 5], [-7, 11, -13]], requires_grad=True)
    total = foreign_weight(weight, torch.tensor([0, 0, 1]))
    total.backward()
    assert total.item() == 5 + 7 + 11
    assert weight.grad is not None
    assert weight.grad.tolist() == [[0, 0, 1], [-1, 1, 0]]


def test_with_parts_every_part_is_drawn_to_its_own_nearest_prototype() -> None:
    generator = torch.Generator().manual_seed(0)
    distances = torch.rand(4, 12, generator=generator)
    owner, part = torch.arange(12) // 4, torch.arange(12) % 2
    own = torch.tensor([0, 1, 2, 1]).unsqueeze(1) == owner
    total = [
        min(float(distances[image, j]) for j in range(12) if own[image, j] and part[j] == number)
        for image in range(4)
        for number in range(2)
    ]
    assert float(cluster_loss(distances, own, part)) == pytest.approx(sum(total) / len(total))


def test_a_part_that_a_class_has_no_prototype_of_costs_nothing() -> None:
    distances = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    own, part = torch.tensor([[True, False, True]]), torch.tensor([0, 1, 0])
    loss = cluster_loss(distances, own, part)
    loss.backward()
    assert float(loss) == 1
    assert distances.grad is not None
    assert distances.grad.tolist() == [[1, 0, 0]]


def test_smoothing_is_torchs() -> None:
    logits, labels = (
        torch.randn(5, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 1, 2, 0, 1]),
    )
    found = PrototypeLoss(smoothing=0.2)(
        logits, torch.ones(5, 3), labels, weight=torch.eye(3), prototype_class=torch.arange(3)
    )
    expected = 0.8 * cross_entropy(logits, labels) - 0.2 * logits.log_softmax(dim=1).mean()
    torch.testing.assert_close(found.cross_entropy, expected)
