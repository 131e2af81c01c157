import pytest

from dprotonet.training.phases import (
    Judgement,
    LearningRates,
    Phase,
    Push,
    StepDecay,
    plan,
    plan_without_pushes,
    planned_epochs,
)


def names(stages: tuple) -> list[str]:
    kinds = {Push: "push", Judgement: "judge"}
    return [
        f"{stage.name}{stage.epochs}" if isinstance(stage, Phase) else kinds[type(stage)] for stage in stages
    ]


def test_the_papers_schedule() -> None:
    stages = plan(LearningRates(), epochs=20, warm=5, push_every=10, last_layer=20)
    assert names(stages) == ["warm5", "joint5", "push", "last20", "joint10", "push", "last20"]


def test_rates_are_those_of_section_4_3() -> None:
    warm, joint, _, last = plan(LearningRates(), epochs=10)
    assert warm.learning_rates == LearningRates(0.0, 3e-3, 3e-3, 1e-4)
    assert joint.learning_rates == LearningRates(1e-4, 3e-3, 3e-3, 1e-4)
    assert last.learning_rates == LearningRates(0.0, 0.0, 0.0, 1e-4)


@pytest.mark.parametrize(("epochs", "total"), [(1, 10), (10, 10), (11, 20), (40, 40)])
def test_every_schedule_ends_at_a_push(epochs: int, total: int) -> None:
    stages = plan(LearningRates(), epochs=epochs, last_layer=0)
    assert isinstance(stages[-1], Push)
    assert sum(stage.epochs for stage in stages if isinstance(stage, Phase)) == total
    assert planned_epochs(plan(LearningRates(), epochs=epochs, last_layer=20)) == total


def test_a_warm_stage_longer_than_the_push_interval() -> None:
    assert names(plan(LearningRates(), epochs=6, warm=5, push_every=3, last_layer=0)) == [
        "warm3", "push", "warm2", "joint1", "push",
    ]  # fmt: skip


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        plan(LearningRates(), epochs=0)


def test_a_head_that_learns_last_or_never() -> None:
    last = plan(LearningRates(), epochs=10, head_learns="last")
    assert names(last) == ["warm5", "joint5", "push", "last20"]
    assert [stage.learning_rates.head for stage in last if isinstance(stage, Phase)] == [0, 0, 1e-4]
    never = plan(LearningRates(), epochs=10, head_learns="never")
    assert names(never) == ["warm5", "joint5", "push"]
    assert [stage.learning_rates.head for stage in never if isinstance(stage, Phase)] == [0, 0]


def test_the_same_epochs_without_pushes() -> None:
    stages = plan_without_pushes(LearningRates(), epochs=15, warm=5, judge_every=10)
    assert names(stages) == ["warm5", "joint5", "judge", "joint10", "judge"]


def test_steps_down_begin_with_the_fifth_joint_epoch() -> None:
    share = StepDecay(warm=2, every=5)
    assert [share(epoch, 99) for epoch in (1, 2, 6, 7, 11, 12)] == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01])


def test_prototypes_that_never_learn_are_pushed_first() -> None:
    stages = plan(LearningRates(), epochs=4, warm=1, push_every=2, last_layer=1, prototypes_learn="never")
    assert names(stages) == ["push", "last1", "warm1", "joint1", "push", "last1", "joint2", "push", "last1"]
    rates = [stage.learning_rates for stage in stages if isinstance(stage, Phase) and stage.name != "last"]
    assert [rate.prototypes for rate in rates] == [0.0] * 3
    assert [rate.shaping for rate in rates] == [3e-3] * 3
    assert planned_epochs(stages) == 4
