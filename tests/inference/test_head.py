"""The last layer: how it starts, and that its logits are sums that can be taken apart."""

import torch

from dprotonet.inference.head import Head

CLASS = torch.tensor([2, 0, 1, 0, 2, 1])  # in no particular order


def test_weights_start_at_one_and_minus_a_half() -> None:
    weight = Head(CLASS).weight
    assert weight.shape == (3, 6)
    for c in range(3):
        for j in range(6):
            assert weight[c, j].item() == (1.0 if CLASS[j] == c else -0.5)


def test_the_starting_weights_are_arguments() -> None:
    assert Head(torch.arange(2), own=2.0, other=-1.0).weight.tolist() == [[2, -1], [-1, 2]]


def test_there_is_no_bias() -> None:
    head = Head(CLASS)
    assert [name for name, _ in head.named_parameters()] == ["weight"]
    assert head(torch.zeros(4, 6)).tolist() == [[0.0] * 3] * 4


def test_one_prototype_a_class_and_one_image() -> None:
    assert Head(torch.arange(3))(torch.tensor([[4.0, 2.0, 0.0]])).tolist() == [[3, 0, -3]]


def test_contributions_take_the_logit_apart() -> None:
    head = Head(CLASS)
    head.weight.data = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    scores, label = torch.rand(4, 6), torch.tensor([0, 2, 2, 1])
    parts = head.contributions(scores, label)
    assert parts.shape == scores.shape
    torch.testing.assert_close(parts.sum(dim=1), head(scores)[torch.arange(4), label])
    silent = scores.clone()
    silent[:, 3] = 0
    lost = head(scores)[torch.arange(4), label] - head(silent)[torch.arange(4), label]
    torch.testing.assert_close(parts[:, 3], lost)


def test_the_head_is_trained() -> None:
    head = Head(CLASS)
    head(torch.ones(2, 6)).sum().backward()
    assert head.weight.grad is not None
    assert head.weight.grad.tolist() == [[2.0] * 6] * 3
