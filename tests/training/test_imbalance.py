"""Classes of very different size: weights and sampling, and that rare classes are found by them."""

from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from sklearn.utils.class_weight import compute_class_weight
from tests.conftest import TinyBackbone, tiny_network
from torch import Tensor, nn

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Masks
from dprotonet.inference.losses import PrototypeLoss, balanced_weights
from dprotonet.metrics.classification import balanced_accuracy
from dprotonet.network import BlackBox, Network
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.evaluation import evaluate
from dprotonet.training.events import RoundDone
from dprotonet.training.features import FeatureViews
from dprotonet.training.phases import Judgement, LearningRates, Phase
from dprotonet.training.push import Pusher
from dprotonet.training.views import BalancedKeys

COUNTS = (80, 10, 10)
RATES = LearningRates(3e-3, 3e-3, 3e-3, 1e-2)


def planted(counts: tuple[int, ...], shape: tuple[int, ...], seed: int) -> FeatureViews:
    """Constant maps whose channels are the class and noise as large: nobody can tell classes apart always."""
    random = np.random.default_rng(seed)
    labels = [number for number, count in enumerate(counts) for _ in range(count)]
    values = random.normal(size=(len(labels), shape[0])) + 2 * np.eye(3, shape[0])[labels]
    maps = np.broadcast_to(values[:, None, :, None, None], (len(labels), 1, *shape))
    return FeatureViews(maps.astype(np.float32), labels)


def network_of(kind: str, mode: str) -> Network:
    torch.manual_seed(0)
    network: Network = tiny_network()
    if kind == "blackbox":
        whole = Masks(torch.ones(1, 1, 4, 4), dimension=8)
        network = BlackBox(Encoder(TinyBackbone(), nn.Identity(), whole), nn.Linear(8, 3))
    return network if mode == "joint" else network.without_backbone()


def balanced_after(kind: str, mode: str, *, weights: bool = False, sampling: bool = False) -> float:
    """Balanced test accuracy."""
    shape, accelerator = ((3, 32, 32) if mode == "joint" else (8, 4, 4)), Accelerator(cpu=True)
    train, val = planted(COUNTS, shape, 0), planted((20, 20, 20), shape, 1)
    chosen = {"sampling": BalancedKeys(0)} if sampling else {}
    engine = Engine(
        network_of(kind, mode),
        train,
        val,
        accelerator,
        Pusher(accelerator),
        loss=PrototypeLoss(class_weight=balanced_weights(COUNTS) if weights else ()),
        settings=EngineSettings(batch=20, **chosen),  # type: ignore[arg-type]
    )
    list(engine.run([Phase("joint", 25, RATES)]))
    test = planted((100, 100, 100), shape, 2)
    return balanced_accuracy(evaluate(engine.network, test, accelerator=accelerator).confusion)


@pytest.mark.parametrize("mode", ["joint", "frozen"])
@pytest.mark.parametrize("kind", ["dprotonet", "blackbox"])
def test_rare_classes_are_found_by_weights_and_by_sampling(kind: str, mode: str) -> None:
    plain = balanced_after(kind, mode)
    assert balanced_after(kind, mode, weights=True) > plain + 0.05
    assert balanced_after(kind, mode, sampling=True) > plain + 0.05


def test_weights_are_those_of_scikit_learn() -> None:
    labels = np.repeat([0, 1, 2], COUNTS)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert balanced_weights(COUNTS) == pytest.approx(expected)
    assert balanced_weights((4, 0, 4)) == (1, 0, 1)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_weighted_cross_entropy_by_hand(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 2, 0, 0, 1])
    weights = (0.5, 2.0, 3.0)
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        lengths = [np.exp(value) for value in row]
        for number, length in enumerate(lengths):
            target = smoothing / 3 + (1 - smoothing) * (number == label)
            total -= weights[label] * target * np.log(length / sum(lengths))
    loss = PrototypeLoss(smoothing=smoothing, class_weight=weights)
    assert loss.entropy(logits, labels).item() == pytest.approx(total / 7, rel=1e-12)
    pieces = [
        loss.entropy(logits[part], labels[part]) * len(labels[part]) / 7 for part in (slice(3), slice(3, 7))
    ]
    torch.testing.assert_close(sum(pieces), loss.entropy(logits, labels))


def test_weights_of_one_are_no_weights() -> None:
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 0])
    alike = PrototypeLoss(class_weight=(1.0, 1.0, 1.0)).entropy(logits, labels)
    torch.testing.assert_close(alike, PrototypeLoss().entropy(logits, labels))


class Says(nn.Module):
    """A network that answers what it is told."""

    def __init__(self, answers: list[int]) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, images: Tensor) -> Tensor:
        return torch.eye(2)[self.answers]


@pytest.mark.parametrize(("balanced", "kept"), [(False, [True, False]), (True, [True, True])])
def test_the_best_model_is_chosen_by_what_was_asked_for(balanced: bool, kept: list[bool]) -> None:
    """All images called common: four of five right, but one class of two."""
    views = FeatureViews(np.zeros((5, 1, 8, 4, 4), np.float32), [0, 0, 0, 0, 1])
    accelerator = Accelerator(cpu=True)
    network: Any = Says([0, 0, 0, 0, 0])
    engine = Engine(
        network, views, views, accelerator, Pusher(accelerator), settings=EngineSettings(balanced=balanced)
    )
    rounds = []
    for event in engine.run([Judgement(), Judgement()]):
        assert isinstance(event, RoundDone)
        rounds.append(event)
        network.answers = [0, 0, 1, 1, 1]
    assert [event.kept for event in rounds] == kept
    assert [event.val_accuracy for event in rounds] == pytest.approx([0.8, 0.6])
