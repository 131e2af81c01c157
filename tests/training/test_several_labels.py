"""Closed forms for several labels: what each label adds, and the weights and bias of its regression."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from dprotonet.inference.several_labels import LabelHead
from dprotonet.training.foreground import class_energy
from dprotonet.training.label_head import fit_label_head, logistic_fit
from dprotonet.training.moments import LabelMoments, moments_of


def planted(count: int = 400) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors that are sums of what their labels add, labels that come together, and what each adds."""
    generator = torch.Generator().manual_seed(0)
    first = (torch.rand(count, generator=generator) < 0.4).double()
    second = torch.where(torch.rand(count, generator=generator) < 0.8, first, 1 - first)  # mostly with it
    labels = torch.stack([first, second], dim=1)
    adds = torch.tensor([[3.0, 0.0, 1.0], [0.0, -2.0, 0.0]], dtype=torch.float64)
    noise = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return labels @ adds + 5 + 0.1 * noise, labels, adds


def moments() -> LabelMoments:
    vectors, labels, _ = planted()
    found = LabelMoments(2, 3)
    for rows in range(0, 400, 64):
        found.update(vectors[rows : rows + 64], labels[rows : rows + 64])
    return found


def test_what_a_label_adds_is_told_apart_from_labels_beside_it() -> None:
    vectors, labels, adds = planted()
    assert (moments().coefficients()[1:] - adds).abs().max() < 0.05
    rows = torch.cat([torch.ones(400, 1, dtype=torch.float64), labels], dim=1)
    literal = torch.linalg.lstsq(rows, vectors).solution
    assert torch.allclose(moments().coefficients(), literal, atol=1e-4)
    plain = vectors[labels[:, 1] > 0].mean(dim=0) - vectors[labels[:, 1] == 0].mean(dim=0)
    assert plain[0] > 1  # the mean of a label's images has what comes with it


def test_spread_within_is_that_of_the_rest() -> None:
    vectors, labels, _ = planted()
    rest = vectors - moments().expected(labels)
    assert torch.allclose(moments().within(), rest.T @ rest / 400, atol=1e-6)


def test_with_and_without_lie_about_the_mean() -> None:
    vectors, _, _ = planted()
    found = moments()
    assert torch.allclose(found.means().mean(dim=0), vectors.mean(dim=0))
    assert torch.allclose(found.means()[1] - found.means()[0], found.coefficients()[1])
    assert found.most == 2


def test_labels_that_always_come_together_are_shared() -> None:
    labels = torch.tensor([[1.0, 1.0], [0.0, 0.0]]).repeat(10, 1)
    found = moments_of(labels, classes=2, dimension=1)
    found.update(labels[:, :1] * 2, labels)
    assert isinstance(found, LabelMoments)
    assert torch.allclose(found.coefficients()[1:], torch.ones(2, 1, dtype=torch.float64), atol=1e-3)


def test_energy_lies_where_a_label_is() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = 0.1 * torch.randn(60, 4, 4, 5, generator=generator)
    labels = (torch.rand(60, 2, generator=generator) < 0.5).float()
    maps[:, 1, 1, 0] += 4 * labels[:, 0]
    maps[:, 2, 3, 1] += 4 * labels[:, 1]
    energy = class_energy(maps, labels)
    both = (labels > 0).all(dim=1)
    best = energy[both].flatten(1).topk(2, dim=1).indices.sort(dim=1).values
    assert (best == torch.tensor([1 * 4 + 1, 2 * 4 + 3])).all()


def test_the_logistic_fit_is_the_optimum() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(300, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.1, 5.0])
    truth = (torch.rand(300, generator=generator) < (2 * scores[:, 0] - 1).sigmoid()).double()
    weight, bias = logistic_fit(scores, truth, ridge=1e-2, negative=True)
    spread = scores.std(dim=0, correction=0)

    def objective(weight: Tensor, bias: Tensor) -> Tensor:
        wanted = truth.clamp(1 / 302, 1 - 1 / 302)
        entropy = binary_cross_entropy_with_logits(scores @ weight + bias, wanted)
        return entropy + 0.5e-2 * (weight * spread).square().sum()

    w, b = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    slopes = torch.autograd.grad(objective(w, b), (w, b))
    assert (slopes[0] / spread).abs().max() < 1e-6
    assert slopes[1].abs() < 1e-6


def test_weights_of_a_label_are_not_negative_and_others_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(200, 2, generator=generator) < 0.5).float()
    scores = torch.randn(200, 4, generator=generator)
    scores[:, 0] += 2 * labels[:, 0]
    scores[:, 1] -= 2 * labels[:, 0]  # looks like the label where it is not
    scores[:, 3] += 2 * labels[:, 1]
    head = LabelHead(torch.tensor([0, 0, 1, 1]))
    fit_label_head(head, scores, labels, torch.tensor([0, 0, 1, 1]))
    assert (head.weight >= 0).all()
    assert head.weight[0, 1] == 0
    assert (head.weight[0, 2:] == 0).all()
    right = ((head(scores) > 0) == (labels > 0)).float().mean()
    assert right > 0.8


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_label_of_all_images_or_none_has_a_finite_bias(value: float) -> None:
    head = LabelHead(torch.tensor([0]))
    fit_label_head(head, torch.rand(20, 1), torch.full((20, 1), value), torch.tensor([0]))
    assert head.bias.isfinite().all()
    assert ((head(torch.rand(5, 1)) > 0) == (value > 0)).all()
