"""What every explainer promises: a map in [0, 1], the same alone as in a batch, and the model untouched."""

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.explainer_subjects import (
    ASKING,
    COUNT,
    LABELS,
    MASKED,
    PRESETS,
    SIZE,
    TOLERANCE,
    Net,
    State,
    entry_of,
    explainer,
    heatmaps,
    images,
    node,
    prototypes,
    used,
)
from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.cam import CAM_CLASSES
from dprotonet.interpretation.explainers import EXPLAINERS, described, explainer_entry
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM
from dprotonet.interpretation.nodes import ClassNode

# ── the map ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("channels", "size"), [(3, (32, 32)), (3, (24, 48)), (3, (45, 32)), (1, (32, 32))])
def test_a_heatmap_has_the_images_size_and_fills_the_unit_interval(
    name: str, channels: int, size: tuple[int, int]
) -> None:
    model = Net(channels)
    given = images(2, channels, size)  # of their own classes: for another there may be nothing to show
    found = explainer(name, model)(given, node(model, model(given).argmax(dim=1).tolist()))
    assert len(found) == 2
    for item in found:
        assert item.heatmap.shape == item.raw.shape == size
        assert item.heatmap.dtype == torch.float32
        assert item.heatmap.min() == 0
        assert item.heatmap.max() == pytest.approx(1)
        assert torch.isfinite(item.raw).all()
        assert not item.heatmap.requires_grad
        assert not item.raw.requires_grad


WITH_BACKWARD = (
    "paper",
    "fast",
    "instant",
    "best",
    "gradcam",
    "gradcam++",
    "layercam",
    "hirescam",
    "xgradcam",
    "rollout",
    "chefer",
    "legrad",
    "attnlrp",
    "fullgrad",
    "ig",
    "smoothgrad",
    "extremal",
)


def test_the_hot_places_of_the_raw_map_are_those_of_the_heatmap(name: str, model: Net) -> None:
    for item in explainer(name, model)(images(), node(model)):
        kept = item.heatmap.flatten() > 0
        order = item.raw.flatten()[kept].argsort(stable=True)
        assert (item.heatmap.flatten()[kept][order].diff() >= -1e-6).all()


def asked(name: str, model: Net, *nodes: ClassNode) -> tuple[int, list[Explanation]]:
    """How many images the network saw, but for the one that is only looked at: for a layer, for foldings."""
    seen = 0

    def count(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        nonlocal seen
        seen += len(inputs[0])

    watched = model.features if name == "similarity" else model.head
    handle = watched.register_forward_pre_hook(count)
    found = explainer(name, model)(images(), *nodes)
    handle.remove()
    return seen - (name in (*CAM_CLASSES, *PRESETS)), found


def test_the_network_was_asked_and_the_passes_say_so(name: str, model: Net) -> None:
    seen, found = asked(name, model, node(model))
    assert found[0].passes.forward * COUNT == seen
    assert (found[0].passes.backward > 0) == (name in WITH_BACKWARD)
    if name != "sampled":  # the one way of the decoder's that needs none
        assert (found[0].passes.backward > 0) == ("gradient" in entry_of(name).needs)


def test_the_pass_that_finds_the_class_is_counted(name: str, model: Net) -> None:
    seen, found = asked(name, model)
    assert found[0].passes.forward * COUNT == seen
    assert seen == asked(name, model, node(model))[0] + COUNT


def test_without_a_node_the_predicted_class_is_explained(name: str, model: Net) -> None:
    predicted = model(images()).argmax(dim=1).tolist()
    assert predicted != LABELS
    found = explainer(name, model)(images())
    assert [item.node.split()[-1] for item in found] == [str(label) for label in predicted]


@pytest.mark.parametrize("name", ASKING)
def test_another_class_has_another_map(name: str, model: Net) -> None:
    first, second = (
        heatmaps(explainer(name, model)(images(), node(model, [label] * COUNT))) for label in (0, 1)
    )
    assert (first - second).abs().max() > 10 * TOLERANCE


def test_nothing_is_printed(name: str, model: Net, capfd: pytest.CaptureFixture[str]) -> None:
    explainer(name, model)(images(), node(model))
    assert capfd.readouterr() == ("", "")


# ── the same for the same ────────────────────────────────────────────────────────────────────────────


def test_the_same_call_gives_the_same_bytes(name: str, model: Net) -> None:
    first = heatmaps(explainer(name, model)(images(), node(model)))
    torch.rand(7)
    assert torch.equal(heatmaps(explainer(name, model)(images(), node(model))), first)


def test_nothing_is_drawn_from_the_global_generator(name: str, model: Net) -> None:
    before = torch.get_rng_state()
    explainer(name, model)(images(), node(model))
    assert torch.equal(torch.get_rng_state(), before)


def test_many_images_are_explained_like_one(name: str, model: Net) -> None:
    many = heatmaps(explainer(name, model)(images(), node(model)))
    for row, label in enumerate(LABELS):
        one = heatmaps(explainer(name, model)(images()[row : row + 1], node(model, [label])))
        assert (one[0] - many[row]).abs().max() <= TOLERANCE


@pytest.mark.parametrize("batch", [1, 4, 7])
def test_the_batch_size_inside_changes_nothing(name: str, model: Net, batch: int) -> None:
    usual = explainer(name, model)(images(), node(model))
    other = explainer(name, model, batch)(images(), node(model))
    for one, two in zip(usual, other, strict=True):
        assert (one.raw - two.raw).abs().max() <= TOLERANCE * one.raw.abs().max()
        # A map that is brightened by a root shows what rounding did near zero.
        assert (one.heatmap - two.heatmap).abs().max() <= 100 * TOLERANCE


def test_a_model_in_training_gives_the_map_of_one_at_rest(name: str, model: Net) -> None:
    rested = heatmaps(explainer(name, model)(images()))
    assert torch.equal(heatmaps(explainer(name, model.train())(images())), rested)
    assert model.training


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_callers_without_gradients_are_served_too(name: str, model: Net, mode: Callable[[], Any]) -> None:
    usual = heatmaps(explainer(name, model)(images()))
    with mode():
        assert torch.equal(heatmaps(explainer(name, model)(images())), usual)
        assert not torch.is_grad_enabled()


def test_the_images_are_left_alone(name: str, model: Net) -> None:
    given = images().requires_grad_()
    explainer(name, model)(given, node(model))
    assert torch.equal(given.detach(), images())
    assert given.grad is None
    assert given.requires_grad


# ── the model comes back as it was ───────────────────────────────────────────────────────────────────


def test_the_model_comes_back_untouched(name: str, model: Net) -> None:
    before = State.of(used(model))
    explainer(name, model)(images(), node(model))
    before.assert_same(model)


def test_also_when_the_class_is_predicted(name: str, model: Net) -> None:
    before = State.of(used(model))
    explainer(name, model)(images())
    before.assert_same(model)


REPEATED = ("rise", "ig", "smoothgrad", "occlusion", "lime", "kernelshap", "extremal")  # ask more than once


class Interrupting:
    """A hook that lets some images pass and then behaves like Ctrl-C."""

    def __init__(self, passes: int) -> None:
        self.passes = passes

    def __call__(self, *_arguments: object) -> None:
        self.passes -= 1
        if self.passes < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", [*PRESETS, *CAM_CLASSES, *REPEATED])
@pytest.mark.parametrize("passes", [0, 1, 2, 3])
def test_also_after_an_interruption_in_the_network(name: str, model: Net, passes: int) -> None:
    model.head.register_forward_hook(Interrupting(passes))
    before = State.of(used(model))
    with pytest.raises(KeyboardInterrupt) as caught:
        explainer(name, model, batch=2)(images(), node(model))
    before.assert_same(model)
    assert caught.tb is not None  # which keeps everything alive that was not closed


@pytest.mark.parametrize("name", MASKED)
def test_also_after_an_exception_in_on_step(name: str, model: Net) -> None:
    def fail(step: Step) -> None:
        if step.number == 2:
            raise RuntimeError("enough")

    before = State.of(used(model))
    with pytest.raises(RuntimeError, match="enough") as caught:
        MDM(model, preset=PRESETS[name]).explain(images(), node(model), on_step=fail)
    before.assert_same(model)
    assert caught.tb is not None  # which keeps everything alive that was not closed


@pytest.mark.parametrize("name", MASKED)
def test_also_when_the_steps_are_abandoned(name: str, model: Net) -> None:
    decoder, before = MDM(model, preset=PRESETS[name]), State.of(used(model))
    steps = decoder.steps(decoder.task(images(), node(model)))
    next(steps)
    assert not any(item.training for item in model.modules())
    del steps
    gc.collect()
    before.assert_same(model)


@pytest.mark.parametrize("name", MASKED)
def test_abandoned_steps_leave_the_callers_gradient_mode_alone(name: str, model: Net) -> None:
    decoder = MDM(model, preset=PRESETS[name])
    steps = decoder.steps(decoder.task(images(), node(model)))
    with torch.no_grad():
        next(steps)
        assert not torch.is_grad_enabled()
    steps.close()
    assert torch.is_grad_enabled()


class Sparse(nn.Module):
    """Few places of its only map are active, and of a faint image hardly any."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.head = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 6, 1), nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        active = (self.second(self.first(images).relu()) - 0.4).relu()
        return 5 * self.head(active.mean(dim=(2, 3)))


def test_a_batch_does_not_choose_the_first_guess_of_its_images() -> None:
    model, levels = Sparse().eval(), torch.tensor([0.5, 1.0, 3.0]).reshape(3, 1, 1, 1)
    given = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1)) * levels
    many = heatmaps(explainer("fast", model)(given, node(model, [0] * 3)))
    for row in range(3):
        one = heatmaps(explainer("fast", model)(given[row : row + 1], node(model, [0])))
        assert (one[0] - many[row]).abs().max() <= TOLERANCE


# ── what the table says ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", EXPLAINERS)
def test_the_table_says_what_is_watched_and_what_it_costs(name: str, model: Net) -> None:
    entry = EXPLAINERS[name]
    (found,) = entry.make(model, prototypes(model, SIZE)).explain(images(1), 3)
    assert found.node == f"{entry.watches} of class 3"
    number, forward = entry.cost.split()[0], found.passes.forward
    if entry.cost == "a pass for every block":  # of which there is one
        assert forward == 1
    elif number == "a":  # of the 12 channels of the deepest map; and the image itself, once or twice
        assert entry.cost == "a pass for every channel"
        assert 13 <= forward <= 14
    else:
        assert forward == int(number)
    dear = entry.cost == "a pass for every channel" if number == "a" else int(number) >= 100
    assert entry.slow == dear


def test_what_is_made_of_prototypes_says_what_it_lacks(model: Net) -> None:
    offered = prototypes(model, SIZE)
    del offered["weight"]
    with pytest.raises(UserError, match="needs a prototype network; not given: weight"):
        EXPLAINERS["similarity"].make(model, offered)


def test_every_cam_is_in_the_table() -> None:
    assert set(CAM_CLASSES) == {name for name, entry in EXPLAINERS.items() if entry.home == "cam:CAM"}
    assert all(EXPLAINERS[name].settings == {"method": name} for name in CAM_CLASSES)


def test_lists_for_people() -> None:
    labels = [entry.label for entry in EXPLAINERS.values()]
    assert len(set(labels)) == len(labels)
    for name, entry in EXPLAINERS.items():
        assert f"{name} ({entry.label}, {entry.cost}" in described()
        assert entry.installed
    assert not replace(EXPLAINERS["mdm"], package="no_such_package").installed
    with pytest.raises(UserError, match="unknown method 'lemon'; known: mdm, gradcam"):
        explainer_entry("lemon")
