"""The cascade of forgetting: what each stage changes, what it leaves, and that nothing is missed."""

from collections import deque
from copy import deepcopy
from typing import TypeVar

import pytest
import torch
from tests.conftest import tiny_network
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.interpretation.randomised import cascade
from dprotonet.interpretation.rise import Rise

Module = TypeVar("Module", bound=nn.Module)


class Mixed(nn.Module):
    """Layers that can start anew, parameters that cannot, and buffers of both kinds."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(2, 3))
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU())
        self.attention = nn.MultiheadAttention(4, 2)
        self.head = nn.Linear(4, 3, bias=False)
        self.register_buffer("scale", torch.rand(5))

    def forward(self, images: Tensor) -> Tensor:
        places = self.first(images).flatten(2).permute(2, 0, 1)
        logits: Tensor = self.head(self.attention(places, places, places)[0].mean(dim=0))
        return logits + self.tokens.sum(dim=0)


NAMES = ["head", "attention.out_proj", "attention", "first.1", "first.0", "tokens"]


def trained(model: Module) -> Module:
    """Every number away from where layers start, as after training."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.add_(torch.rand(value.shape, generator=generator) / 2)
    return model


@pytest.fixture
def model() -> Mixed:
    torch.manual_seed(0)
    return trained(Mixed()).eval()


def state(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    assert before.keys() == after.keys()
    return {key for key in before if not torch.equal(before[key], after[key])}


def test_layers_forget_one_after_the_other_from_the_output(model: Mixed) -> None:
    before = state(model)
    expected = [
        {"head.weight"},
        {"attention.out_proj.weight", "attention.out_proj.bias"},
        {"attention.in_proj_weight", "attention.in_proj_bias"},
        {f"first.1.{key}" for key in ("weight", "bias", "running_mean", "running_var")},
        {"first.0.weight", "first.0.bias"},
        {"tokens"},
    ]
    for stage, name, keys in zip(cascade(model, seed=0), NAMES, expected, strict=True):
        assert stage.name == name
        after = state(stage.model)
        assert changed(before, after) == keys
        before = after


def test_stages_are_copies_and_the_model_is_left_alone(model: Mixed) -> None:
    model.first[0].requires_grad_(False)
    model.head.train()
    before, flags = state(model), [item.training for item in model.modules()]
    stages = [stage.model for stage in cascade(model, seed=0)]
    assert not changed(before, state(model))
    assert len({id(item) for item in [model, *stages]}) == len(NAMES) + 1
    values = {item.data_ptr() for one in [model, *stages] for item in one.parameters()}
    assert len(values) == (len(NAMES) + 1) * len(list(model.parameters()))
    for stage in stages:
        assert [item.training for item in stage.modules()] == flags
        assert [item.requires_grad for item in stage.parameters()] == [
            item.requires_grad for item in model.parameters()
        ]
        assert all(item.is_leaf for item in stage.parameters())


def test_a_seed_decides_everything_and_the_callers_luck_nothing(model: Mixed) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = []
    for stage in cascade(model, seed=3):
        assert torch.equal(torch.get_rng_state(), before)  # also while the caller is at work
        assert torch.is_grad_enabled()
        first.append(state(stage.model))
    torch.manual_seed(6)
    for one, again in zip(first, cascade(model, seed=3), strict=True):
        torch.rand(3)
        assert not changed(one, state(again.model))
    *_, other = cascade(model, seed=4)
    random = {"head.weight", "attention.in_proj_weight", "first.0.weight", "first.0.bias", "tokens"}
    assert random <= changed(first[-1], state(other.model))


def test_what_cannot_start_anew_is_shuffled(model: Mixed) -> None:
    *_, (_, last) = cascade(model, seed=0)
    for key in ("tokens", "attention.in_proj_weight", "attention.in_proj_bias"):
        old, new = model.get_parameter(key), last.get_parameter(key)
        assert not (old == new).any()  # every value moves
        assert torch.equal(old.flatten().sort().values, new.flatten().sort().values)


def test_statistics_of_batches_go_with_their_layer(model: Mixed) -> None:
    *_, (_, last) = cascade(model, seed=0)
    norm = last.get_submodule("first.1")
    assert norm.running_mean.tolist() == [0] * 4  # type: ignore[union-attr, operator]
    assert norm.running_var.tolist() == [1] * 4  # type: ignore[union-attr, operator]
    assert torch.equal(last.get_buffer("scale"), model.scale)


@pytest.mark.parametrize("seed", range(8))
def test_two_numbers_change_places_for_sure(seed: int) -> None:
    model = nn.Module()
    model.register_parameter("pair", nn.Parameter(torch.tensor([1.0, 2.0])))
    ((name, forgotten),) = cascade(model, seed=seed)
    assert name == "pair"
    assert forgotten.get_parameter("pair").tolist() == [2, 1]


def test_a_layer_that_resets_only_half_is_shuffled_where_it_does_not() -> None:
    class Half(nn.Linear):
        def reset_parameters(self) -> None:
            nn.init.zeros_(self.bias)

    model = trained(Half(3, 4))
    ((_, forgotten),) = cascade(model, seed=0)
    assert forgotten.get_parameter("bias").tolist() == [0] * 4
    assert not (forgotten.get_parameter("weight") == model.weight).any()


def test_prototypes_forget(images: Tensor) -> None:
    network = trained(tiny_network()).eval()
    stages = dict(cascade(network, seed=0))
    assert list(stages)[:3] == ["head", "prototypes", "encoder.shaping.2"]
    forgotten = stages["prototypes"].get_parameter("prototypes.vectors")
    assert not (forgotten == network.prototypes.vectors).any()
    assert torch.equal(stages["head"].get_parameter("prototypes.vectors"), network.prototypes.vectors)
    last = stages[list(stages)[-1]]
    assert torch.equal(last.get_buffer("encoder.regions.masks"), network.encoder.regions.masks)
    assert torch.equal(last.get_buffer("prototypes.prototype_class"), network.prototype_class)
    assert last(images).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("resnet18", {}), ("vit_tiny_patch16_224", {"depth": 3}), ("test_efficientnet", {})],
)
def test_nothing_is_missed(name: str, settings: dict[str, int]) -> None:
    model = trained(import_guarded("timm").create_model(name, num_classes=5, **settings)).eval()
    (last,) = deque(cascade(model, seed=0), maxlen=1)  # the others need not be kept
    pairs = [(key, old, last.model.get_parameter(key)) for key, old in model.named_parameters()]
    assert not [key for key, old, new in pairs if old.numel() > 1 and torch.equal(old, new)]
    with torch.no_grad():
        logits = last.model(torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)))
    assert torch.isfinite(logits).all()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_maps_of_every_stage(images: Tensor) -> None:
    """How the check is put together: an explainer of each stage, for the classes of the whole network."""
    network = trained(tiny_network()).eval()
    labels = ClassNode.predicted(network, images).labels

    def maps(model: nn.Module) -> Tensor:
        node = ClassNode(model, labels, probability=False)
        return torch.stack([item.raw for item in Rise(model, samples=30).explain(images, node)])

    original = maps(network)
    stages = {name: maps(model) for name, model in cascade(network, seed=0)}
    assert len(stages) == 6
    assert all(not torch.allclose(found, original) for found in stages.values())
    assert torch.equal(maps(deepcopy(network)), original)


def deep() -> nn.Sequential:
    """Twenty convolutions with BatchNorm, and dropout that would disturb what is measured."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(20):
        layers += [nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5)]
    return trained(nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * 32 * 32, 4)))


def test_statistics_can_be_measured_so_that_the_signal_lives(images: Tensor) -> None:
    model = deep()
    (dead,) = deque(cascade(model, seed=0), maxlen=1)
    (alive,) = deque(cascade(model, seed=0, images=images), maxlen=1)

    def spread(network: nn.Module) -> float:
        with torch.no_grad():
            return float((network.eval()(images) - network(torch.zeros_like(images))).abs().max())

    assert all(module.training for module in alive.model.modules())
    assert spread(dead.model) < 1e-4
    assert spread(alive.model) > 1e-2
    for one, other in zip(dead.model.parameters(), alive.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_only_forgotten_layers_are_measured_and_as_at_rest(images: Tensor) -> None:
    model = deep()
    before, last = state(model), "73"  # the second last BatchNorm
    stages = dict(cascade(model, seed=0, images=images))
    after = state(stages[last])
    assert {key.split(".")[0] for key in changed(before, after)} == {"73", "76", "77", "81"}
    norm = stages[last].get_submodule("77")
    with torch.no_grad():
        seen = nn.Sequential(*list(stages[last].eval().children())[:77])(images)
    assert torch.allclose(norm.running_mean, seen.mean(dim=(0, 2, 3)), atol=1e-3)  # type: ignore[arg-type]
    assert torch.allclose(norm.running_var, seen.transpose(0, 1).flatten(1).var(dim=1), rtol=1e-2)  # type: ignore[arg-type]
    assert norm.momentum == 0.1
