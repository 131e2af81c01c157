"""What each node watches, what it wants kept, and what it says about mistakes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.nodes import (
    ArrayNode,
    CallableNode,
    ClassNode,
    ModuleNode,
    Node,
    RegionNode,
    TargetNode,
)

ROWS = torch.tensor([2, 0, 0, 1])  # of the explained image that each masked image came from
LABELS = [3, 0, 1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 6, 3, stride=2)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.first(images)).relu().mean(dim=(2, 3)))
        return logits


class Wrapping(nn.Module):
    """A model that hands its logits out in some other shape."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.wrap = Net().eval(), wrap

    def forward(self, images: Tensor) -> Any:
        return self.wrap(self.net(images))


@pytest.fixture
def model() -> Net:
    return Net().eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(4, 3, 12, 16, generator=torch.Generator().manual_seed(1))


def every_node(model: Net) -> list[Node]:
    return [
        ClassNode(model, LABELS),
        TargetNode(model, [lambda output: output[0]] * 3),
        CallableNode(lambda images: images.mean(dim=(2, 3))),
        ArrayNode(lambda images: images.mean(axis=(1, 2, 3))),
        ModuleNode(model, "first"),
        RegionNode(lambda images: images.flatten(2), torch.tensor([1, 0, 2])),
    ]


@pytest.mark.parametrize("kind", range(6))
def test_every_node_keeps_the_protocol(kind: int, model: Net, images: Tensor) -> None:
    node = every_node(model)[kind]
    assert isinstance(node, Node)
    values = node(images, ROWS)
    assert values.dtype == torch.float32
    assert values.ndim == 2
    assert len(values) == 4
    assert node.direction(images, ROWS).shape == (4,)
    assert node.target(ROWS) is None
    assert node.name(1)
    node.check(3)


# ── classes ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_class_is_watched_at_its_probability_or_its_logit(model: Net, images: Tensor) -> None:
    wanted = [LABELS[row] for row in ROWS]
    logits = model(images)
    for probability, values in ((True, logits.softmax(dim=1)), (False, logits)):
        node = ClassNode(model, LABELS, probability=probability)
        expected = torch.stack([values[place, label] for place, label in enumerate(wanted)])
        torch.testing.assert_close(node(images, ROWS).squeeze(1), expected)
        direction = torch.stack([logits[place, label] for place, label in enumerate(wanted)])
        torch.testing.assert_close(node.direction(images, ROWS), direction)
        assert node.name(0) == f"{'probability' if probability else 'logit'} of class 3"


def test_the_predicted_class_is_the_largest_logit(model: Net, images: Tensor) -> None:
    model.head.weight.data *= 20
    expected = model(images).argmax(dim=1)
    assert expected.unique().numel() > 1
    assert torch.equal(ClassNode.predicted(model, images, batch=3).labels, expected)


def test_predicting_leaves_a_model_in_training_alone(model: Net, images: Tensor) -> None:
    expected, mean = ClassNode.predicted(model, images).labels, model.norm.running_mean.clone()  # type: ignore[union-attr, operator]
    assert torch.equal(ClassNode.predicted(model.train(), images).labels, expected)
    assert model.training
    assert torch.equal(model.norm.running_mean, mean)  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [[0, 4, 1], [0, -1, 1]])
def test_a_class_out_of_range_is_named(model: Net, images: Tensor, labels: list[int]) -> None:
    with pytest.raises(UserError, match=rf"no class {labels[1]}; the model has classes 0 to 3"):
        ClassNode(model, labels)(images[:3], torch.arange(3))


def test_labels_may_be_any_integers(model: Net) -> None:
    for labels in ([1, 2], (1, 2), np.array([1, 2]), torch.tensor([[1], [2]])):
        assert ClassNode(model, labels).labels.tolist() == [1, 2]  # type: ignore[arg-type]


WRAPS: dict[str, Callable[[Tensor], Any]] = {
    "logits": lambda logits: SimpleNamespace(logits=logits),
    "tuple": lambda logits: (logits, logits.sum()),
    "list": lambda logits: [logits],
    "tuple in logits": lambda logits: SimpleNamespace(logits=(logits,)),
    "dict": lambda logits: {"scores": logits},
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_wrapped_logits_are_unwrapped(wrap: Callable[[Tensor], Any], model: Net, images: Tensor) -> None:
    plain, wrapped = ClassNode(model, LABELS), ClassNode(Wrapping(wrap).eval(), LABELS)
    assert torch.equal(wrapped(images, ROWS), plain(images, ROWS))


BAD: dict[str, Callable[[Tensor], Any]] = {
    "a dict without tensors": lambda logits: {"note": "x"},
    "nothing": lambda logits: None,
    "a map": lambda logits: logits[:, :, None, None],
    "one number": lambda logits: logits.sum(),
    "too few": lambda logits: logits[:-1],
}


@pytest.mark.parametrize("wrap", BAD.values(), ids=BAD)
def test_outputs_that_are_no_logits_are_refused(wrap: Callable[[Tensor], Any], images: Tensor) -> None:
    model = Wrapping(wrap).eval()
    with pytest.raises(UserError, match=r"for 4 images, not logits \(B, C\)"):
        ClassNode(model, LABELS)(images, ROWS)
    with pytest.raises(UserError, match="not logits"):
        ClassNode.predicted(model, images)


# ── grad-cam's targets ───────────────────────────────────────────────────────────────────────────────


class Weighted:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, output: Tensor) -> Tensor:
        return self.weight * output[1] - output[2]


def test_every_image_has_its_own_target(model: Net, images: Tensor) -> None:
    node = TargetNode(model, [Weighted(1), Weighted(2), Weighted(3)])
    logits = model(images)
    expected = [(row + 1) * logits[place, 1] - logits[place, 2] for place, row in enumerate(ROWS.tolist())]
    torch.testing.assert_close(node(images, ROWS), torch.stack(expected).unsqueeze(1))
    torch.testing.assert_close(node.direction(images, ROWS), torch.stack(expected))
    assert node.name(0) == "Weighted"


def test_targets_see_one_output_an_image_whatever_it_is(images: Tensor) -> None:
    detector = Wrapping(lambda logits: [{"scores": row} for row in logits]).eval()
    node = TargetNode(detector, [lambda output: output["scores"][:1]] * 3)
    torch.testing.assert_close(node(images, ROWS)[:, 0], detector.net(images)[:, 0])
    wrapped = TargetNode(Wrapping(WRAPS["logits"]).eval(), [Weighted(1)] * 3)
    assert torch.equal(wrapped(images, ROWS), TargetNode(detector.net, [Weighted(1)] * 3)(images, ROWS))


@pytest.mark.parametrize("wrap", [BAD["nothing"], BAD["a dict without tensors"], BAD["too few"]])
def test_a_model_without_one_output_an_image_is_refused(
    wrap: Callable[[Tensor], Any], images: Tensor
) -> None:
    with pytest.raises(UserError, match="not one output per image"):
        TargetNode(Wrapping(wrap).eval(), [Weighted(1)] * 3)(images, ROWS)


def test_a_target_that_gives_no_number_is_refused(model: Net, images: Tensor) -> None:
    with pytest.raises(UserError, match=r"gave \(4,\); a target must give one number"):
        TargetNode(model, [lambda output: output] * 3)(images, ROWS)


# ── functions and modules ────────────────────────────────────────────────────────────────────────────


def test_a_function_may_give_numbers_vectors_or_maps(images: Tensor) -> None:
    numbers = CallableNode(lambda given: given.sum(dim=(1, 2, 3)))
    maps = CallableNode(lambda given: given * 2, name="twice")
    assert torch.equal(numbers(images, ROWS), images.sum(dim=(1, 2, 3)).unsqueeze(1))
    assert torch.equal(maps(images, ROWS), 2 * images.flatten(1))
    assert (numbers.name(0), maps.name(3)) == ("<lambda>", "twice")
    assert numbers.model is None


def test_a_module_as_function_is_borrowed(model: Net) -> None:
    assert CallableNode(model).model is model
    assert CallableNode(model.first, model=model).model is model


def test_a_vectors_direction_has_the_gradient_of_half_its_square(images: Tensor) -> None:
    node = CallableNode(lambda given: given.mean(dim=(2, 3)))
    leaf = images.clone().requires_grad_()
    (ours,) = torch.autograd.grad(node.direction(leaf, ROWS).sum(), leaf)
    (literal,) = torch.autograd.grad((node(leaf, ROWS).square() / 2).sum(), leaf)
    torch.testing.assert_close(ours, literal)


@pytest.mark.parametrize("bad", [lambda x: None, lambda x: x.sum(), lambda x: x[:-1], lambda x: x.tolist()])
def test_a_function_with_another_number_of_rows_is_refused(bad: Any, images: Tensor) -> None:
    with pytest.raises(UserError, match=r"gave .* for 4 images; it must give a tensor \(B, …\)"):
        CallableNode(bad)(images, ROWS)


def test_arrays_go_out_and_come_back(images: Tensor) -> None:
    kinds = []

    def session(given: np.ndarray) -> np.ndarray:
        kinds.append(type(given))
        return given.reshape(len(given), -1)[:, :5].astype(np.float64)

    values = ArrayNode(session)(images.clone().requires_grad_(), ROWS)
    assert torch.equal(values, images.flatten(1)[:, :5])
    assert not values.requires_grad
    assert kinds == [np.ndarray]
    assert ArrayNode(session).name(0) == "session"
    lists = ArrayNode(lambda given: [float(item.sum()) for item in given])
    torch.testing.assert_close(lists(images, ROWS)[:, 0], images.sum(dim=(1, 2, 3)))


@pytest.mark.parametrize("bad", [lambda x: 3.0, lambda x: x[:-1]])
def test_an_array_with_another_number_of_rows_is_refused(bad: Any, images: Tensor) -> None:
    with pytest.raises(UserError, match=r"for 4 images; it must give \(B, …\)"):
        ArrayNode(bad)(images, ROWS)


def test_a_module_is_watched_whole_or_by_one_channel(model: Net, images: Tensor) -> None:
    output = model.first(images)
    whole, channel = ModuleNode(model, "first"), ModuleNode(model, "first", channel=4)
    assert torch.equal(whole(images, ROWS), output.flatten(1))
    torch.testing.assert_close(channel(images, ROWS)[:, 0], output[:, 4].mean(dim=(1, 2)))
    assert (whole.name(0), channel.name(0)) == ("first", "first[4]")
    torch.testing.assert_close(ModuleNode(model, "head", channel=2)(images, ROWS)[:, 0], model(images)[:, 2])
    assert not model.first._forward_hooks


def test_a_module_is_watched_before_its_output_is_changed_in_place(images: Tensor) -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(inplace=True))
    expected = model[0](images)
    assert expected.min() < 0
    assert torch.equal(ModuleNode(model, "0")(images, ROWS), expected.flatten(1))


def test_a_channel_of_tokens_is_a_channel(images: Tensor) -> None:
    """A class token and 6 × 8 patches, of 5 channels each."""
    tokens = torch.randn(4, 1 + 6 * 8, 5, generator=torch.Generator().manual_seed(2))
    model = nn.Sequential(nn.Identity(), nn.Identity())
    model[0].forward = lambda _images: tokens  # type: ignore[method-assign, assignment]
    expected = tokens[:, 1:, 3].mean(dim=1)
    torch.testing.assert_close(ModuleNode(model, "0", channel=3)(images, ROWS)[:, 0], expected)


def test_modules_that_cannot_be_watched_are_named(model: Net, images: Tensor) -> None:
    with pytest.raises(UserError, match=r"no module 'last'; it has e\.g\. first, norm, head"):
        ModuleNode(model, "last")
    with pytest.raises(UserError, match="no module ''"):
        ModuleNode(model, "")
    for channel in (6, -1):
        with pytest.raises(UserError, match=f"module first has no channel {channel}"):
            ModuleNode(model, "first", channel=channel)(images, ROWS)
    model.idle = nn.ReLU()
    with pytest.raises(UserError, match="module idle gives no tensor"):
        ModuleNode(model, "idle")(images, ROWS)


# ── regions ──────────────────────────────────────────────────────────────────────────────────────────


class Regions(nn.Module):
    """Images to the vectors of 2 × 2 places, (B, 4, 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, images: Tensor) -> Tensor:
        places = nn.functional.adaptive_avg_pool2d(self.net.norm(self.net.first(images)), 2)
        return places.flatten(2).transpose(1, 2)


def test_a_region_stays_while_its_image_is_masked(images: Tensor) -> None:
    regions = Regions().eval()
    node = RegionNode(regions, torch.tensor([3, 1, 0]))
    vectors = regions(images)
    expected = torch.stack([vectors[0, 0], vectors[1, 3], vectors[2, 3], vectors[3, 1]])
    assert torch.equal(node(images, ROWS), expected)
    torch.testing.assert_close(node.direction(images, ROWS), expected.square().sum(dim=1))
    assert node.model is regions
    assert node.name(0) == "region 3"
    assert RegionNode(regions, torch.tensor([3]), names=["wing"]).name(0) == "wing"


def test_a_prototype_in_its_source_is_kept_itself(images: Tensor) -> None:
    regions, prototypes = Regions().eval(), torch.randn(3, 6)
    region = torch.tensor([2, 0, 3])
    inside = RegionNode(regions, region, names=["a", "b", "c"])
    source = RegionNode(regions, region, target=prototypes)
    assert torch.equal(source(images, ROWS), inside(images, ROWS))
    assert inside.target(ROWS) is None
    kept = source.target(ROWS)
    assert kept is not None
    assert torch.equal(kept, prototypes[ROWS])
    values = source(images, ROWS)
    torch.testing.assert_close(source.direction(images, ROWS), (values * prototypes[ROWS]).sum(dim=1))
    assert inside.name(2) == "c"


# ── one each ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [2, 4])
def test_another_number_of_targets_than_images_is_refused(count: int, model: Net) -> None:
    for node, what in ((0, "target"), (1, "target"), (5, "prototype")):
        with pytest.raises(UserError, match=f"3 {what}s for {count} images"):
            every_node(model)[node].check(count)


def test_another_number_of_prototypes_than_images_is_refused(images: Tensor) -> None:
    with pytest.raises(UserError, match="1 prototypes for 4 images"):
        RegionNode(Regions().eval(), torch.tensor([2])).check(len(images))
