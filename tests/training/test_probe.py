"""The linear probe: what it is fitted to, and that it is the same however little of it is in memory."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dprotonet.training import probe as room
from dprotonet.training.features import FeatureViews
from dprotonet.training.probe import Pooled, Scaling, fit_probe


def cloud(count: int, *, seed: int, variants: int = 1) -> tuple[Tensor, Tensor]:
    """Vectors (N, V, D) about the means of three classes, and labels (N,)."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    means = 1.5 * torch.eye(3, 8)
    return means[labels].unsqueeze(1) + torch.randn(count, variants, 8, generator=generator), labels


def views(vectors: Tensor, labels: Tensor) -> FeatureViews:
    """As cached maps (N, V, D, 2, 1) whose average is the vector."""
    shift = torch.tensor([1.0, -1.0]).reshape(2, 1)
    return FeatureViews((vectors[..., None, None] + shift).numpy(), labels.tolist())


def whole(vectors: Tensor, labels: Tensor, strength: float) -> tuple[nn.Linear, Tensor, Tensor]:
    """The regression with everything in memory at once, as an oracle."""
    rows, names = vectors.flatten(0, 1), labels.repeat_interleave(vectors.shape[1])
    mean, std = rows.mean(0), rows.std()
    layer = nn.Linear(8, 3)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(layer((rows - mean) / std), names) + strength * layer.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return layer, mean, std


@pytest.mark.parametrize("held", [0, 2**29])
def test_blocks_give_the_regression_of_everything_at_once(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(room, "_BLOCK", 7)
    monkeypatch.setattr(Pooled, "__init__", _held(Pooled.__init__, held))
    vectors, labels = cloud(60, seed=0, variants=2)
    judged, names = cloud(45, seed=1)
    found = fit_probe(views(vectors, labels), views(judged, names), classes=3)
    layer, mean, std = whole(vectors, labels, found.strength)
    torch.testing.assert_close(found.mean, mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.std, std, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.layer.weight, layer.weight, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.layer.bias, layer.bias, rtol=1e-3, atol=1e-3)
    said = found.predictions(views(judged, names))
    expected = layer((judged[:, 0] - mean) / std)
    torch.testing.assert_close(said.logits, expected.detach(), rtol=1e-3, atol=1e-3)
    assert said.labels.tolist() == names.tolist()


def _held(init: Any, held: int) -> Any:
    def made(self: Pooled, views: FeatureViews, augmented: bool, *given: object) -> None:
        init(self, views, augmented, *given[:1], held=held)

    return made


def test_what_is_too_large_is_read_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_BLOCK", 8)
    vectors, labels = cloud(20, seed=0, variants=2)
    kept = views(vectors, labels)
    small, large = Pooled(kept, augmented=True), Pooled(kept, augmented=True, held=100)
    assert [len(block.labels) for block in large] == [16, 16, 8]
    assert not large._kept
    for one, two in zip(small, large, strict=True):
        torch.testing.assert_close(one.vectors, two.vectors, rtol=0, atol=0)
    assert [block.vectors.data_ptr() for block in small] == [block.vectors.data_ptr() for block in small]


def test_averages_that_were_kept_are_taken_and_not_those_of_the_map() -> None:
    """The map may be of joined levels; the baseline is of the trunk's own last map."""
    vectors, labels = cloud(12, seed=0, variants=2)
    maps = np.zeros((12, 2, 5, 2, 2), np.float16)
    joined = FeatureViews(maps, labels.tolist(), beside={"pooled": vectors.numpy()})
    pooled = Pooled(joined, augmented=False)
    assert (pooled.width, pooled.count) == (8, 12)
    torch.testing.assert_close(torch.cat([block.vectors for block in pooled]), vectors[:, 0])
    part = Pooled(joined.part([3, 5], 1), augmented=True)
    torch.testing.assert_close(next(iter(part)).vectors, vectors[[3, 5]].flatten(0, 1))


def test_scaling_is_a_mean_for_each_channel_and_one_deviation() -> None:
    found = Scaling(torch.tensor([1.0, 2.0]), torch.tensor(2.0))(torch.tensor([[3.0, 2.0]]))
    assert found.tolist() == [[1.0, 0.0]]
