"""The three ways into MDM, what an explanation holds, presets, precisions, and networks of all kinds."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.interpretation.conftest import Net
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.algorithm1 import Algorithm1
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, PRESETS, Preset, preset
from dprotonet.interpretation.nodes import ClassNode, ModuleNode
from dprotonet.interpretation.ranked_masks import RankedMasks

COUNT, CLASSES, SIZE = 3, 4, (32, 40)
FAST = preset("fast", iterations=4, sizes=(5, 7))


@pytest.fixture
def images() -> Tensor:
    """Each at another level, so that their classes differ."""
    levels = torch.tensor([-1.0, 0.0, 1.5]).reshape(COUNT, 1, 1, 1)
    return torch.randn(COUNT, 3, *SIZE, generator=torch.Generator().manual_seed(1)) + levels


def maps(found: list[Explanation]) -> Tensor:
    return torch.stack([item.heatmap for item in found])


def watched(model: nn.Module, labels: list[int], *, probability: bool = True) -> ClassNode:
    return ClassNode(model, labels, probability=probability)


# ── like pytorch-grad-cam ────────────────────────────────────────────────────────────────────────────


class ClassifierOutputTarget:
    """Like the one of pytorch-grad-cam, which is not imported here."""

    def __init__(self, category: Any) -> None:
        self.category = category

    def __call__(self, output: Tensor) -> Tensor:
        return output[self.category]


class BinaryClassifierOutputTarget(ClassifierOutputTarget):
    def __call__(self, output: Tensor) -> Tensor:
        return output if self.category == 1 else -output


def test_without_targets_the_prediction_is_explained(model: Net, images: Tensor) -> None:
    predicted = model(images).argmax(dim=1).tolist()
    assert len(set(predicted)) > 1
    found = MDM(model, preset=FAST)(images)
    assert isinstance(found, np.ndarray)
    assert found.shape == (COUNT, *SIZE)
    assert found.dtype == np.float32
    decoder = MDM(model, preset=FAST)
    assert np.array_equal(found, maps(decoder.explain(images, watched(model, predicted))).numpy())


def test_grad_cams_call_needs_no_change(model: Net, images: Tensor) -> None:
    targets = [ClassifierOutputTarget(label) for label in (3, np.int64(0), 1)]
    with MDM(model=model, target_layers=[model.features[-1]], preset=FAST) as cam:
        found = cam(input_tensor=images, targets=targets)
        again = cam(images, targets, aug_smooth=False, eigen_smooth=False)
    assert np.array_equal(found, again)
    decoder = MDM(model, preset=FAST)
    assert np.array_equal(found, maps(decoder.explain(images, watched(model, [3, 0, 1]))).numpy())


def test_targets_that_name_no_class_are_called(model: Net, images: Tensor) -> None:
    found = MDM(model, preset=FAST)(images, [lambda output: output[1] - output[0]] * COUNT)
    node = ContrastNode(model, [1] * COUNT, 0)
    assert np.allclose(found, maps(MDM(model, preset=FAST).explain(images, node)).numpy(), atol=1e-4)


@pytest.mark.parametrize(("category", "sign"), [(1, 1), (0, -1)])
def test_a_category_that_is_no_class_is_not_taken_for_one(category: int, sign: int, images: Tensor) -> None:
    """A model of one logit: category 0 is its negative."""
    model = Net(classes=1).eval()
    found = MDM(model, preset=FAST)(images, [BinaryClassifierOutputTarget(category)] * COUNT)
    node = watched(model, [category] * COUNT, probability=False)
    assert np.allclose(found, maps(MDM(model, preset=FAST).explain(images, node)).numpy(), atol=1e-4)
    assert torch.equal(node.outputs.scores(images)[:, category], sign * model(images).squeeze(1))
    assert found.max() > 0


@pytest.mark.parametrize("count", [1, COUNT + 1])
@pytest.mark.parametrize("kind", [ClassifierOutputTarget, BinaryClassifierOutputTarget])
def test_another_number_of_targets_is_refused(model: Net, images: Tensor, count: int, kind: Any) -> None:
    with pytest.raises(UserError, match=f"{count} targets for {COUNT} images"):
        MDM(model, preset=FAST)(images, [kind(0)] * count)


@pytest.mark.parametrize("smooth", ["aug_smooth", "eigen_smooth"])
def test_smoothing_is_refused(model: Net, images: Tensor, smooth: str) -> None:
    with pytest.raises(UserError, match="leave aug_smooth and eigen_smooth out"):
        MDM(model, preset=FAST)(images, **{smooth: True})


def test_a_function_of_one_number_is_a_target_or_a_regression(images: Tensor) -> None:
    def brightness(given: Tensor) -> Tensor:
        return given.square().mean(dim=(1, 2, 3))

    with pytest.raises(UserError, match=r"always 1: its task is not 'single'.*task='regression'"):
        MDM(brightness, task="single", preset=FAST)(images)
    found = MDM(preset=FAST)(images, brightness)
    assert (MDM(brightness, task="regression", preset=FAST)(images) - found).max() == 0
    assert found.shape == (COUNT, *SIZE)
    assert found.max() > 0


# ── like captum ──────────────────────────────────────────────────────────────────────────────────────


def test_attributions_have_the_inputs_shape(model: Net, images: Tensor) -> None:
    found = MDM(model, preset=FAST).attribute(images, target=[2, 0, 1])
    assert found.shape == images.shape
    assert found.device == images.device
    expected = maps(MDM(model, preset=FAST).explain(images, watched(model, [2, 0, 1])))
    for channel in range(3):
        assert torch.equal(found[:, channel], expected)
    found /= 2  # a tensor of its own, not a view of one channel
    assert found.max() == 0.5


@pytest.mark.parametrize(
    "target", [2, [2, 2, 2], (2, 2, 2), torch.tensor(2), torch.tensor([2]), torch.tensor([2, 2, 2])]
)
def test_targets_are_integers_lists_or_tensors(model: Net, images: Tensor, target: Any) -> None:
    expected = maps(MDM(model, preset=FAST).explain(images, watched(model, [2] * COUNT)))
    assert torch.equal(MDM(model, preset=FAST).attribute(images, target)[:, 0], expected)


def test_attribution_without_target_is_of_the_prediction(model: Net, images: Tensor) -> None:
    decoder = MDM(model, preset=FAST)
    assert torch.equal(decoder.attribute(images)[:, 1], maps(decoder.explain(images)))


@pytest.mark.parametrize("target", [[0, 1], torch.tensor([0, 1]), [0] * 4])
def test_another_number_of_labels_is_refused(model: Net, images: Tensor, target: Any) -> None:
    with pytest.raises(UserError, match=f"{len(target)} targets for {COUNT} images"):
        MDM(model, preset=FAST).attribute(images, target)


def test_progress_goes_to_stderr_only(model: Net, images: Tensor, capsys: pytest.CaptureFixture[str]) -> None:
    MDM(model, preset=FAST).attribute(images, 0)
    assert capsys.readouterr() == ("", "")
    MDM(model, preset=FAST).attribute(images, 0, show_progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "MDM" in err
    assert "4/4" in err
    assert "loss" in err


# ── everything ───────────────────────────────────────────────────────────────────────────────────────


def test_on_step_sees_every_step_and_may_stop(model: Net, images: Tensor) -> None:
    steps: list[Step] = []

    def enough(step: Step) -> bool:
        steps.append(step)
        return step.number == 3

    found = MDM(model, preset=FAST).explain(images, on_step=enough)
    assert [step.number for step in steps] == [1, 2, 3]
    assert {step.total for step in steps} == {4}
    for row, item in enumerate(found):
        assert len(item.loss) == 3
        assert item.loss == tuple(step.loss[row].item() for step in steps)
        assert torch.equal(item.raw, steps[-1].raw[row])
        assert item.facts["steps"] == 3
    assert not torch.equal(steps[0].raw, steps[2].raw)


def test_a_stopped_optimisation_is_the_beginning_of_a_whole_one(model: Net, images: Tensor) -> None:
    whole: list[Step] = []
    MDM(model, preset=FAST).explain(images, on_step=whole.append)  # type: ignore[arg-type]
    assert len(whole) == 4
    stopped = MDM(model, preset=FAST).explain(images, on_step=lambda step: step.number == 2)
    assert torch.equal(torch.stack([item.raw for item in stopped]), whole[1].raw)


def test_the_steps_can_be_walked_by_hand(model: Net, images: Tensor) -> None:
    decoder = MDM(model, preset=FAST)
    task = decoder.task(images)
    steps = list(decoder.steps(task))
    found = decoder.finish(task, steps[-1], torch.stack([step.loss for step in steps]))
    assert torch.equal(maps(found), maps(decoder.explain(images)))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (preset("fast"), "fast"),
        (preset("fast", iterations=15), "fast, iterations=15"),
        (preset("best", iterations=15), "best, iterations=15"),
        (preset("sampled", samples=20), "sampled, samples=20"),
        (preset("paper", iterations=3), "paper, iterations=3"),
    ],
)
def test_a_changed_preset_says_what_it_began_as(given: Preset, name: str) -> None:
    assert MDM(preset=given).name == name


def test_a_way_of_ones_own_is_custom() -> None:
    @dataclass(frozen=True)
    class Own(RankedMasks):
        pass

    assert MDM(preset=Own()).name == "custom"


def test_an_explanation_says_what_made_it(model: Net, images: Tensor) -> None:
    found = MDM(model, preset=FAST, internal_batch_size=4).explain(images, watched(model, [1, 2, 3]))
    for row, item in enumerate(found):
        assert item.node == f"probability of class {row + 1}"
        assert torch.equal(item.image, images[row])
        assert {size: mask.shape for size, mask in item.masks.items()} == {5: (5, 5), 7: (7, 7)}
        assert all(mask.min() >= 0 and mask.max() <= 1 for mask in item.masks.values())
        assert item.facts["preset"] == "fast, sizes=(5, 7), iterations=4"
        assert item.facts["settings"]["strategy"] == "RankedMasks"
        assert item.facts["settings"]["iterations"] == 4
        assert item.facts["versions"].keys() == {"dprotonet", "torch"}
        assert f"{SIZE[0]}×{SIZE[1]}" in repr(item)
    with pytest.raises(AttributeError):
        found[0].node = "another"  # type: ignore[misc]


def test_a_named_preset_is_remembered_by_its_name(model: Net) -> None:
    found = MDM(model, preset="fast").explain(torch.rand(1, 3, 16, 16), on_step=lambda step: True)
    assert found[0].facts["preset"] == "fast"
    assert found[0].facts["settings"]["iterations"] == RankedMasks().iterations


def test_every_preset_has_a_summary(model: Net, images: Tensor) -> None:
    for name in PRESETS:
        change = {"samples": 10} if name == "sampled" else {"iterations": 2}
        item = MDM(model, preset=preset(name, **change)).explain(images)[0]
        assert json.loads(json.dumps(item.summary()))["settings"]["sizes"] == list(range(6, 16))


# ── presets ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_preset_may_be_changed() -> None:
    changed = preset("paper", iterations=15, sizes=(4, 5))
    assert changed == Algorithm1(iterations=15, sizes=(4, 5))
    assert PRESETS["paper"] == Algorithm1()
    assert preset("fast") == PRESETS["fast"]
    assert MDM(preset=changed).preset is changed


def test_unknown_presets_and_values_are_named() -> None:
    with pytest.raises(UserError, match="unknown preset 'quick'; known: paper, fast, instant, best, sampled"):
        preset("quick")
    with pytest.raises(UserError, match="unknown preset 'quick'"):
        MDM(preset="quick")
    with pytest.raises(UserError, match="preset 'paper' has no value 'softness'; it has: sizes, iterations"):
        preset("paper", softness=1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("paper", {"iterations": 0}),
        ("paper", {"sizes": ()}),
        ("paper", {"sizes": (0, 3)}),
        ("paper", {"sizes": (3, 3)}),
        ("paper", {"rate": 0.0}),
        ("paper", {"start": 1.5}),
        ("fast", {"iterations": 0}),
        ("fast", {"sizes": ()}),
        ("fast", {"rate": -0.1}),
        ("fast", {"softness": 0.0}),
        ("fast", {"softness": 0.3, "softest": 0.2}),
        ("fast", {"smallest": 0.0}),
        ("fast", {"largest": 1.0}),
        ("best", {"smallest": 0.6, "largest": 0.5}),
    ],
)
def test_impossible_values_are_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="possible"):
        preset(name, **change)


@pytest.mark.parametrize("batch", [0, -1])
def test_the_batch_size_inside_is_at_least_one(model: Net, images: Tensor, batch: int) -> None:
    with pytest.raises(UserError, match="internal_batch_size must be at least 1"):
        MDM(model, preset=FAST).explain(images, internal_batch_size=batch)
    with pytest.raises(UserError, match="internal_batch_size must be at least 1"):
        MDM(model, preset=FAST, internal_batch_size=batch)(images)


def test_blocks_are_no_larger_than_asked(model: Net, images: Tensor) -> None:
    sizes: list[int] = []
    model.head.register_forward_pre_hook(lambda _module, inputs: sizes.append(len(inputs[0])))
    for name in ("paper", "fast", "sampled"):
        change = {"samples": 10} if name == "sampled" else {"iterations": 2}
        MDM(model, preset=preset(name, **change)).explain(images, internal_batch_size=4)
    assert max(sizes) == 4


def test_without_a_model_a_node_is_needed(images: Tensor) -> None:
    with pytest.raises(UserError, match="this MDM has no model"):
        MDM(preset=FAST).explain(images)
    with pytest.raises(UserError, match="this MDM has no model"):
        MDM(preset=FAST)(images, [ClassifierOutputTarget(0)] * COUNT)
    assert MDM(preset=FAST).explain(images, lambda given: given.mean(dim=(1, 2, 3)))[0].heatmap.max() == 1


# ── precisions ───────────────────────────────────────────────────────────────────────────────────────


def close(first: Tensor, second: Tensor) -> bool:
    """By rank: halved precision moves values, but the hot places stay."""
    pairs = zip(first.flatten(1), second.flatten(1), strict=True)
    return all(torch.corrcoef(torch.stack(pair))[0, 1] > 0.9 for pair in pairs)


@pytest.mark.parametrize("name", ["paper", "fast", "sampled"])
def test_autocast_is_welcome(model: Net, images: Tensor, name: str) -> None:
    change = {"samples": 60} if name == "sampled" else {"iterations": 8}
    decoder = MDM(model, preset=preset(name, sizes=(4, 6), **change))
    expected = maps(decoder.explain(images, watched(model, [0, 1, 2], probability=False)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = maps(decoder.explain(images, watched(model, [0, 1, 2], probability=False)))
    assert found.dtype == torch.float32
    assert close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["paper", "fast", "sampled"])
def test_models_of_any_precision_are_welcome(images: Tensor, name: str, dtype: torch.dtype) -> None:
    change = {"samples": 60} if name == "sampled" else {"iterations": 8}
    by = preset(name, sizes=(4, 6), **change)
    full, model = Net().eval(), Net().eval().to(dtype)
    expected = maps(MDM(full, preset=by).explain(images, watched(full, [0, 1, 2], probability=False)))
    found = maps(MDM(model, preset=by).explain(images, watched(model, [0, 1, 2], probability=False)))
    assert found.dtype == torch.float32
    assert close(found, expected)
    assert MDM(model, preset=by)(images.to(dtype)).shape == (COUNT, *SIZE)


def test_a_network_that_flattens_by_view_is_welcome(images: Tensor) -> None:
    """Channels-last images, which are faster, would be its end."""

    class Viewing(Net):
        def forward(self, given: Tensor) -> Tensor:
            features = self.features(given).relu()
            places = features.view(len(given), -1).view(len(given), 12, -1)
            return 20 * self.head(places.mean(dim=2))

    viewing = Viewing().eval()
    for name in ("paper", "fast"):
        by = preset(name, iterations=4)
        found, expected = MDM(viewing, preset=by)(images), MDM(Net().eval(), preset=by)(images)
        assert np.abs(found - expected).mean() < 1e-3  # Adam follows the sign of what rounding leaves


# ── other nodes, other networks ──────────────────────────────────────────────────────────────────────


def test_modules_and_functions_are_explained(model: Net, images: Tensor) -> None:
    decoder = MDM(model, preset=FAST)
    for node in (
        ModuleNode(model, "features.0", channel=2),
        ModuleNode(model, "features"),
        lambda given: model.features(given).mean(dim=(2, 3)),
    ):
        found = maps(decoder.explain(images, node))
        assert found.amax(dim=(1, 2)).tolist() == [1] * COUNT
        assert found.amin(dim=(1, 2)).tolist() == [0] * COUNT


@pytest.mark.parametrize("name", ["fast", "paper"])
def test_an_image_in_company_gets_the_very_map_it_gets_alone(name: str) -> None:
    """In a real network rounding depends on the batch, and an optimisation makes much of it."""
    network = Classifier.open("timm:tf_efficientnet_lite0:packaged").module.eval()
    images = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    labels = [3, 99, 700]
    decoder = MDM(network, preset=preset(name, iterations=5))
    together = decoder.explain(images, watched(network, labels))
    for row, label in enumerate(labels):
        (alone,) = decoder.explain(images[row : row + 1], watched(network, [label]))
        assert torch.equal(alone.raw, together[row].raw)
        assert torch.equal(alone.heatmap, together[row].heatmap)
