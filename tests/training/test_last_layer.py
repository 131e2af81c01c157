"""The last layer on its own does what the training's last-layer stage does."""

import math

import pytest
import torch
from accelerate import Accelerator
from tests.conftest import tiny_network, tiny_views

from dprotonet.errors import ComputationError
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.network import DProtoNet
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.evaluation import evaluate
from dprotonet.training.events import EpochDone, RoundDone
from dprotonet.training.last_layer import LastLayer, train_head
from dprotonet.training.phases import LearningRates, Phase, Push
from dprotonet.training.push import Pusher
from dprotonet.training.scores import ScoreViews

LOSS = PrototypeLoss(foreign=0.02)
SETTINGS = LastLayer(epochs=3, rate=0.01, batch=6, seed=5, loss=LOSS)


@torch.no_grad()
def plain_scores(network: DProtoNet) -> ScoreViews:
    views = tiny_views("train", augment=False)
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    return ScoreViews(network.eval().evidence(inputs).scores, views.labels)


def test_it_is_the_engines_last_layer_stage() -> None:
    trained, alone = tiny_network(), tiny_network()
    accelerator = Accelerator(cpu=True)
    views, val = tiny_views("train", augment=False), tiny_views("val", per_class=1)
    settings = EngineSettings(seed=5, batch=6)
    engine = Engine(trained, views, val, accelerator, Pusher(accelerator), loss=LOSS, settings=settings)
    start = trained.head.weight.detach().clone()
    list(engine.run([Phase("last", 3, LearningRates(0.0, 0.0, 0.0, 0.01))]))
    losses = list(train_head(alone.head, plain_scores(alone), alone.prototype_class, settings=SETTINGS))
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert not torch.equal(trained.head.weight, start)
    torch.testing.assert_close(alone.head.weight, trained.head.weight, rtol=1e-5, atol=1e-6)


def test_validation_from_kept_scores_is_that_of_the_whole_network() -> None:
    network, accelerator = tiny_network(), Accelerator(cpu=True)
    views, val = tiny_views("train", augment=False), tiny_views("val", per_class=4)
    engine = Engine(
        network, views, val, accelerator, Pusher(accelerator), loss=LOSS, settings=EngineSettings(batch=6)
    )
    seen = []
    # A push before, so that a round ends the stage; rates so high that the head turns over in every epoch.
    for event in engine.run([Push(), Phase("last", 4, LearningRates(0.0, 0.0, 0.0, 1.0))]):
        if isinstance(event, EpochDone | RoundDone):
            seen.append(event.val_accuracy)
            assert event.val_accuracy == evaluate(network, val, accelerator=accelerator).accuracy
    assert len(seen) == 5
    assert len(set(seen)) > 1


def test_the_first_loss_is_the_literal_one() -> None:
    """With a rate of nearly 0 the epoch's mean is the loss of the weights as they are."""
    network = tiny_network()
    views, weight = plain_scores(network), network.head.weight.detach().double()
    entropy = 0.0
    for row, label in zip(views.scores.double(), views.labels, strict=True):
        logits = [sum(float(w * g) for w, g in zip(line, row, strict=True)) for line in weight]
        entropy += math.log(sum(math.exp(logit - logits[label]) for logit in logits)) / len(views)
    owner = network.prototype_class.tolist()
    foreign = sum(abs(float(weight[c, p])) for c in range(3) for p in range(6) if owner[p] != c)
    settings = LastLayer(epochs=1, rate=1e-12, batch=4, loss=LOSS)
    (loss,) = train_head(network.head, views, network.prototype_class, settings=settings)
    assert loss == pytest.approx(entropy + 0.02 * foreign, rel=1e-5)


def test_scores_that_are_no_numbers() -> None:
    network = tiny_network()
    views = ScoreViews(torch.full((6, 6), math.nan), [0, 1, 2, 0, 1, 2])
    with pytest.raises(ComputationError, match="not finite"):
        list(train_head(network.head, views, network.prototype_class, settings=SETTINGS))
