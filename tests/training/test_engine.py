"""The loop: what learns, what rests, what is yielded, and when it stops."""

import math
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from tests.conftest import tiny_network, tiny_views

from dprotonet.errors import ComputationError
from dprotonet.network import DProtoNet
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.events import EpochDone, PushDone, RoundDone, StepDone
from dprotonet.training.phases import LearningRates, Phase, Push, plan
from dprotonet.training.push import Pusher
from dprotonet.training.scores import Scoring, score_views
from dprotonet.training.views import epoch_keys

RATES = LearningRates()


def engine(network: DProtoNet, **settings: int) -> Engine:
    accelerator = Accelerator(cpu=True)
    numbers = EngineSettings(**{"batch": 6, "patience": 9, **settings})
    return Engine(
        network,
        tiny_views("train"),
        tiny_views("val"),
        accelerator,
        Pusher(accelerator, images=2),
        settings=numbers,
    )


def state(network: DProtoNet) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def changed(network: DProtoNet, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}


@pytest.mark.parametrize("frozen", [False, True])
def test_statistics_of_a_learning_backbone_may_stay_what_they_are(frozen: bool) -> None:
    network = tiny_network()
    before = state(network)
    list(engine(network, frozen_norm=frozen).run([Phase("joint", 1, RATES)]))
    statistics = {name for name in changed(network, before) if "running" in name}
    assert bool(statistics) is not frozen
    assert "encoder.backbone.layers.1.weight" in changed(network, before)  # of BatchNorm itself: learns


@pytest.mark.parametrize(
    ("phase", "parts"),
    [
        (Phase("warm", 1, LearningRates(backbone=0.0)), {"encoder.shaping", "prototypes", "head"}),
        (Phase("joint", 1, RATES), {"encoder.backbone", "encoder.shaping", "prototypes", "head"}),
        (Phase("last", 1, LearningRates(0.0, 0.0, 0.0, 1e-4)), {"head"}),
    ],
)
def test_only_the_parts_with_a_rate_learn(phase: Phase, parts: set[str]) -> None:
    """BatchNorm statistics of a frozen backbone count as the backbone."""
    network = tiny_network()
    before = state(network)
    list(engine(network).run([phase]))
    assert {
        part for part in parts if any(name.startswith(part) for name in changed(network, before))
    } == parts
    assert all(any(name.startswith(part) for part in parts) for name in changed(network, before))


def test_events_come_in_order() -> None:
    events = list(engine(tiny_network()).run(plan(RATES, epochs=2, warm=1, push_every=2, last_layer=1)))
    kinds = [type(event) for event in events if not isinstance(event, StepDone)]
    assert kinds == [EpochDone, EpochDone, PushDone, EpochDone, RoundDone]
    steps = [event for event in events if isinstance(event, StepDone)]
    assert len(steps) == 3 * math.ceil(15 / 6)
    assert steps[0].phase == "warm"
    assert steps[-1].phase == "last"


def test_training_learns() -> None:
    network = tiny_network()
    events = list(engine(network).run([Phase("joint", 40, LearningRates(3e-3, 3e-3, 3e-3, 3e-3))]))
    epochs = [event for event in events if isinstance(event, EpochDone)]
    assert epochs[-1].terms["cross_entropy"] < 0.7 * epochs[0].terms["cross_entropy"]
    assert epochs[-1].train_accuracy > 0.5 > 1 / 3


def test_patience_counts_rounds_without_a_better_validation_accuracy() -> None:
    nothing_learns = [Push(), Push(), Push(), Push(), Push()]
    runner = engine(tiny_network(), patience=2)
    runner.pusher = Pusher(runner.accelerator, images=1)  # pushing twice is pushing once: no round is better
    rounds = [event for event in runner.run(nothing_learns) if isinstance(event, RoundDone)]
    assert [event.kept for event in rounds] == [True, True, True]  # equals: the latest is kept
    assert [event.stop for event in rounds] == [False, False, True]


def test_the_head_phase_sees_the_networks_scores(tmp_path: Path) -> None:
    """The cached scores are those the network gives for the same views."""
    runner = engine(tiny_network())
    scoring, keys = Scoring(runner.accelerator, tmp_path), epoch_keys(runner.train_views, epoch=1)
    scores = score_views(runner.network, runner.train_views, scoring, keys=keys)
    view = runner.train_views[4, 1]
    expected = runner.network.evidence(view.inputs.unsqueeze(0)).scores[0]
    torch.testing.assert_close(scores[4, 0].inputs, expected, rtol=1e-4, atol=1e-5)


def test_a_loss_that_is_not_finite_ends_the_run_with_a_remedy() -> None:
    network = tiny_network()
    with torch.no_grad():
        network.head.weight[0, 0] = torch.nan
    with pytest.raises(ComputationError, match=r"not finite in joint epoch 1.*learning rates"):
        list(engine(network).run([Phase("joint", 1, RATES)]))


def test_the_same_seed_gives_the_same_weights() -> None:
    results = []
    for _ in range(2):
        network = tiny_network()
        list(engine(network).run(plan(RATES, epochs=2, warm=1, push_every=2, last_layer=1)))
        results.append(state(network))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])
