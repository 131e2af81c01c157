"""What every explainer promises: a map in [0, 1], the same alone as in a batch, and the model untouched."""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.cam import CAM_CLASSES
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.explainers import EXPLAINERS, ExplainerEntry, described, explainer_entry
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import CallableNode, ClassNode

CLASSES, COUNT, SIZE = 5, 3, (32, 40)
LABELS = [4, 0, 2]
TOLERANCE = 1e-4
PRESETS = {
    "paper": preset("paper", iterations=6, sizes=(4, 7), sparsity=1.0),
    "fast": preset("fast", iterations=6, sizes=(5, 6)),
    "best": preset("best", iterations=9),
    "sampled": preset("sampled", samples=40, block=15, sizes=(4, 6)),
}
OTHERS = [name for name in EXPLAINERS if name != "mdm"]
NAMES = [*PRESETS, *OTHERS]  # every line of the table, mdm by every preset
MASKED = list(PRESETS)
SMALL = {"rise": {"samples": 40, "grid": 5}}
SPECIES = ("finch", "lark", "robin", "swift", "wren")


class Net(nn.Module):
    """All that behaves otherwise in training: BatchNorm, dropout, an activation in place."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(
            nn.Conv2d(channels, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 12, 3, stride=2, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(inplace=True),
        )
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(12, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = torch.randn(module.num_features) / 4
                module.running_var = torch.rand(module.num_features) / 4 + 0.1
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.features(images).mean(dim=(2, 3))
        return 5 * self.head(self.dropout(pooled))


Explain = Callable[..., list[Explanation]]


def entry_of(name: str) -> ExplainerEntry:
    """The line of the table; an explainer that takes long by default takes less here."""
    entry = EXPLAINERS["mdm" if name in PRESETS else name]
    return replace(entry, settings={**entry.settings, **SMALL.get(name, {})})


def made(
    name: str, model: nn.Module | Callable[[Tensor], Tensor], size: tuple[int, int] = SIZE, batch: int = 32
) -> Explainer:
    """By the table, of plain arguments."""
    offered = {"preset": PRESETS.get(name), **prototypes(model, size)}
    by = entry_of(name).make(model, offered, classes=SPECIES)
    by.batch = batch
    return by


def explainer(name: str, model: nn.Module, batch: int = 32) -> Explain:
    def explain(given: Tensor, *nodes: ClassNode) -> list[Explanation]:
        return made(name, model, (given.shape[-2], given.shape[-1]), batch).explain(given, *nodes)

    return explain


def prototypes(model: Any, size: tuple[int, int]) -> dict[str, Any]:
    """The network as if it had prototypes, whose regions are the places of its feature map."""
    generator = torch.Generator().manual_seed(3)
    vectors, weight = (
        torch.rand(6, 12, generator=generator),
        torch.rand(CLASSES, 6, generator=generator) - 0.3,
    )
    height, width = -(-size[0] // 4), -(-size[1] // 4)
    return {
        "regions": lambda images: model.get_submodule("features")(images).flatten(2).transpose(1, 2),
        "footprint": torch.eye(height * width).unflatten(1, (height, width)),
        "similarity": lambda regions, wanted: -torch.cdist(regions, wanted),
        "prototypes": vectors,
        "weight": weight,
    }


def node(model: nn.Module, labels: list[int] = LABELS) -> ClassNode:
    return ClassNode(model, labels, probability=False)


def images(count: int = COUNT, channels: int = 3, size: tuple[int, int] = SIZE) -> Tensor:
    return torch.randn(count, channels, *size, generator=torch.Generator().manual_seed(1))


def heatmaps(found: list[Explanation]) -> Tensor:
    return torch.stack([item.heatmap for item in found])


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    return wanted


@pytest.fixture
def model() -> Net:
    return Net()


# ── the map ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("channels", "size"), [(3, (32, 32)), (3, (24, 48)), (3, (45, 32)), (1, (32, 32))])
def test_a_heatmap_has_the_images_size_and_fills_the_unit_interval(
    name: str, channels: int, size: tuple[int, int]
) -> None:
    model = Net(channels)
    found = explainer(name, model)(images(2, channels, size), node(model, [0, 3]))
    assert len(found) == 2
    for item in found:
        assert item.heatmap.shape == item.raw.shape == size
        assert item.heatmap.dtype == torch.float32
        assert item.heatmap.min() == 0
        assert item.heatmap.max() == pytest.approx(1)
        assert torch.isfinite(item.raw).all()
        assert not item.heatmap.requires_grad
        assert not item.raw.requires_grad


def test_the_hot_places_of_the_raw_map_are_those_of_the_heatmap(name: str, model: Net) -> None:
    for item in explainer(name, model)(images(), node(model)):
        kept = item.heatmap.flatten() > 0
        order = item.raw.flatten()[kept].argsort(stable=True)
        assert (item.heatmap.flatten()[kept][order].diff() >= -1e-6).all()


def asked(name: str, model: Net, *nodes: ClassNode) -> tuple[int, list[Explanation]]:
    """How many images the network saw, but for the one that CAMs look for a layer by."""
    seen = 0

    def count(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        nonlocal seen
        seen += len(inputs[0])

    watched = model.features if name == "similarity" else model.head
    handle = watched.register_forward_pre_hook(count)
    found = explainer(name, model)(images(), *nodes)
    handle.remove()
    return seen - (name in CAM_CLASSES), found


def test_the_network_was_asked_and_the_passes_say_so(name: str, model: Net) -> None:
    seen, found = asked(name, model, node(model))
    assert found[0].passes.forward * COUNT == seen
    assert (found[0].passes.backward > 0) == (name in ("paper", "fast", "best", "gradcam", "gradcam++"))
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

_GLOBAL = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass
class State:
    """All of a model that an explainer could have touched."""

    modules: list[int]
    training: list[bool]
    hooks: list[tuple[int, ...]]
    everywhere: list[int]
    wanted: list[bool]
    gradients: list[Tensor | None]
    values: dict[str, Tensor]

    @classmethod
    def of(cls, model: nn.Module) -> "State":
        module = torch.nn.modules.module
        return cls(
            [id(item) for item in model.modules()],
            [item.training for item in model.modules()],
            [tuple(len(getattr(item, hooks)) for hooks in _HOOKS) for item in model.modules()],
            [len(getattr(module, hooks)) for hooks in _GLOBAL],
            [item.requires_grad for item in model.parameters()],
            [None if item.grad is None else item.grad.clone() for item in model.parameters()],
            {key: value.clone() for key, value in model.state_dict().items()},
        )

    def assert_same(self, model: nn.Module) -> None:
        now = State.of(model)
        for key in ("modules", "training", "hooks", "everywhere", "wanted"):
            assert getattr(now, key) == getattr(self, key), key
        for before, after in zip(self.gradients, now.gradients, strict=True):
            assert (before is None) == (after is None)
            assert before is None or after is None or torch.equal(before, after)
        assert now.values.keys() == self.values.keys()
        assert all(torch.equal(now.values[key], value) for key, value in self.values.items())


def used(model: Net) -> Net:
    """As in the middle of a training: mixed modes, a frozen layer, gradients of some parameters."""
    model.train()
    model.features[1].eval()
    model.features[0].requires_grad_(False)
    model.head.weight.grad = torch.full_like(model.head.weight, 0.25)
    return model


def test_the_model_comes_back_untouched(name: str, model: Net) -> None:
    before = State.of(used(model))
    explainer(name, model)(images(), node(model))
    before.assert_same(model)


def test_also_when_the_class_is_predicted(name: str, model: Net) -> None:
    before = State.of(used(model))
    explainer(name, model)(images())
    before.assert_same(model)


class Interrupting:
    """A hook that lets some images pass and then behaves like Ctrl-C."""

    def __init__(self, passes: int) -> None:
        self.passes = passes

    def __call__(self, *_arguments: object) -> None:
        self.passes -= 1
        if self.passes < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", [*PRESETS, *CAM_CLASSES, "rise"])
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


# ── every explainer is called alike ──────────────────────────────────────────────────────────────────


class ClassifierOutputTarget:
    """Like the one of pytorch-grad-cam, which is not imported here."""

    def __init__(self, category: int) -> None:
        self.category = category

    def __call__(self, output: Tensor) -> Tensor:
        return output[self.category]


ROBIN: dict[str, Any] = {  # class 2 of every image
    "number": 2,
    "number of NumPy": np.int64(2),
    "name": "robin",
    "tensor of one": torch.tensor(2),
    "tensor of one in a row": torch.tensor([2]),
    "target": ClassifierOutputTarget(2),
    "list": [2] * COUNT,
    "tuple": (2,) * COUNT,
    "names": ["robin"] * COUNT,
    "names and numbers": ["robin", np.int32(2), torch.tensor(2)],
    "tensor": torch.full((COUNT,), 2),
    "column": torch.full((COUNT, 1), 2),
    "array": np.full(COUNT, 2),
    "array read backwards": np.full(COUNT, 2)[::-1],
    "array of foreign byte order": np.full(COUNT, 2, dtype=">i8"),
    "array of names": np.array(["robin"] * COUNT),
    "array of names and numbers": np.array(["robin", 2, np.int8(2)], dtype=object),
    "targets": [ClassifierOutputTarget(2)] * COUNT,
}


def three_ways(by: Explainer, target: Any) -> list[Tensor]:
    """Heatmaps (N, H, W) as pytorch-grad-cam, captum and everything else would have them."""
    called, attributed = by(images(), target), by.attribute(images(), target)
    assert isinstance(called, np.ndarray)
    assert called.dtype == np.float32
    assert attributed.shape == images().shape
    assert torch.equal(attributed[:, 0], attributed[:, 2])
    return [torch.from_numpy(called), attributed[:, 1], heatmaps(by.explain(images(), target))]


@pytest.mark.parametrize("kind", ROBIN)
def test_a_class_may_be_told_in_many_ways(name: str, kind: str, model: Net) -> None:
    by = made(name, model)
    asked = by.question(images(), ROBIN[kind], batch=32).node
    assert isinstance(asked, ClassNode)
    assert asked.labels.tolist() == [2] * COUNT
    assert asked.probability == by.probability


@pytest.mark.parametrize("kind", ["number", "names", "targets"])
def test_three_ways_in_give_one_map(name: str, kind: str, model: Net) -> None:
    usual = heatmaps(explainer(name, model)(images(), node(model, [2] * COUNT)))
    ways = three_ways(made(name, model), ROBIN[kind])
    assert torch.equal(ways[0], ways[1])
    assert torch.equal(ways[0], ways[2])
    if not made(name, model).probability:  # as `node` is
        assert torch.equal(ways[0], usual)


def test_each_image_has_a_class_of_its_own(name: str, model: Net) -> None:
    found = made(name, model).explain(images(), [SPECIES[LABELS[0]], *LABELS[1:]])
    assert [item.node.split()[-1] for item in found] == [str(label) for label in LABELS]
    for row, label in enumerate(LABELS):
        (alone,) = made(name, model).explain(images()[row : row + 1], label)
        assert (alone.heatmap - found[row].heatmap).abs().max() <= TOLERANCE


def test_nothing_is_the_prediction_and_no_pass_is_lost(name: str, model: Net) -> None:
    ways = three_ways(made(name, model), None)
    assert torch.equal(ways[0], heatmaps(explainer(name, model)(images())))


def test_functions_of_the_output(name: str, model: Net) -> None:
    """As pytorch-grad-cam has them; a network's own maps are of classes and prototypes only."""
    by, targets = made(name, model), [lambda output: output[2] - output[0]] * COUNT
    if "prototypes" in entry_of(name).needs:
        with pytest.raises(UserError, match="explain classes and prototypes only; use MDM"):
            by(images(), targets)
        return
    found = by.explain(images(), targets)
    assert heatmaps(found).amax(dim=(1, 2)).min() > 0
    assert (heatmaps(found) - heatmaps(by.explain(images(), 2))).abs().max() > 10 * TOLERANCE


def test_functions_of_images_and_nodes(name: str, model: Net) -> None:
    def brightness(given: Tensor) -> Tensor:
        return given[:, :, :12].square().mean(dim=(1, 2, 3))

    by = made(name, model)
    for target in (brightness, CallableNode(brightness)):
        if {"feature map", "prototypes"} & set(entry_of(name).needs):
            with pytest.raises(UserError, match="use MDM for other nodes"):
                by(images(), target)
        else:
            found = by.explain(images(), target)
            assert [item.node for item in found] == ["brightness"] * COUNT
            assert all(item.raw[:12].mean() > item.raw[20:].mean() for item in found)


REFUSED: dict[str, tuple[Any, str]] = {
    "a bool": (True, r"True \(bool\) is no class; give nothing for the predicted class"),
    "bools": ([True, False, True], r"True \(bool\) is no class"),
    "a tensor of bools": (torch.tensor([True] * COUNT), "of type torch.bool, and classes are whole numbers"),
    "a float": (1.0, r"1.0 \(float\) is no target; give nothing"),
    "floats": ([1.0] * COUNT, r"1.0 \(float\) is no class"),
    "a tensor of floats": (torch.ones(COUNT), "of type torch.float32, and classes are whole numbers"),
    "an array of floats": (np.ones(COUNT), "of type torch.float64, and classes are whole numbers"),
    "an array of nothings": (np.array([None] * COUNT), r"None \(NoneType\) is no class"),
    "a table of names": (np.array([["robin"]] * COUNT), r"\['robin'\] \(list\) is no class"),
    "an empty list": ([], "the list of targets is empty"),
    "too few": ([0, 1], f"2 targets for {COUNT} images; give exactly one target per image"),
    "too many": ([0] * 4, f"4 targets for {COUNT} images"),
    "a list of one": ([0], f"1 targets for {COUNT} images"),
    "too few in a tensor": (torch.tensor([0, 1]), f"2 targets for {COUNT} images"),
    "too many targets": ([ClassifierOutputTarget(1)] * 4, f"4 targets for {COUNT} images"),
    "a table": (torch.zeros(COUNT, 2, dtype=torch.long), r"the shape \(3, 2\); give one class per image"),
    "no such class": (CLASSES, f"no class {CLASSES}; the model has classes 0 to {CLASSES - 1}"),
    "a class below none": ([0, -1, 0], f"no class -1; the model has classes 0 to {CLASSES - 1}"),
    "no such name": ("robins", "no class 'robins'; did you mean 'robin'?"),
    "nothing among names": (["robin", None, "lark"], r"None \(NoneType\) is no class"),
    "a mapping": ({"robin": 2}, r"\(dict\) is no target; give nothing"),
    "a set": ({0, 1, 2}, r"\(set\) is no target"),
    "a thing": (object(), r"\(object\) is no target"),
    "a class of Python": (ClassifierOutputTarget, r"\(type\) is no target"),
    "functions and numbers": ([len, 1, 2], "targets mix functions with 1"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_target_is_refused_in_a_sentence(name: str, kind: str, model: Net) -> None:
    target, message = REFUSED[kind]
    by, before = made(name, model), State.of(used(model))
    for way in (by, by.attribute, by.explain):
        with pytest.raises(UserError, match=message):
            way(images(), target)
    before.assert_same(model)


def test_a_node_belongs_in_no_list(name: str, model: Net) -> None:
    with pytest.raises(UserError, match="give it alone, not in a list"):
        made(name, model)(images(), [node(model)] * COUNT)


def test_names_have_to_be_known(name: str, model: Net) -> None:
    by = made(name, model)
    by.classes = ()
    with pytest.raises(UserError, match="'robin' is not known by its name: give the explainer classes="):
        by(images(), "robin")


def test_a_plain_function_is_explained_like_its_module_or_refused(name: str, model: Net) -> None:
    def function(given: Tensor) -> Tensor:
        return model(given)

    if {"feature map", "prototypes"} & set(entry_of(name).needs):
        with pytest.raises(UserError, match=r"a module.*; MDM and Rise explain functions too"):
            made(name, function)
        return
    wanted = three_ways(made(name, model), LABELS)[0]
    for found in three_ways(made(name, function), LABELS):
        assert torch.equal(found, wanted)
    assert made(name, function).explain(images())[0].node == made(name, model).explain(images())[0].node


@pytest.mark.parametrize("thing", ["resnet50", 3, Net])
def test_what_is_no_model_is_refused(name: str, thing: Any) -> None:
    with pytest.raises(UserError, match="a module"):
        made(name, thing)


def test_code_written_for_cams_runs(name: str, model: Net) -> None:
    with made(name, model) as cam:
        assert cam(input_tensor=images(), targets=[ClassifierOutputTarget(0)] * COUNT).shape == (COUNT, *SIZE)
    with pytest.raises(UserError, match="leave aug_smooth and eigen_smooth out"):
        made(name, model)(images(), aug_smooth=True)


# ── what the table says ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", EXPLAINERS)
def test_the_table_says_what_is_watched_and_what_it_costs(name: str, model: Net) -> None:
    entry = EXPLAINERS[name]
    (found,) = entry.make(model, prototypes(model, SIZE)).explain(images(1), 3)
    assert found.node == f"{entry.watches} of class 3"
    number, forward = entry.cost.split()[0], found.passes.forward
    if number == "a":  # of the 12 channels of the deepest map; and the image itself, once or twice
        assert entry.cost == "a pass for every channel"
        assert 13 <= forward <= 14
    else:
        assert forward == int(number)
    assert entry.slow == (number == "a" or int(number) >= 100)


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
    with pytest.raises(UserError, match="unknown method 'lime'; known: mdm, gradcam"):
        explainer_entry("lime")
