"""A small network and every explainer of the table, for the contracts that all of them keep."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.explainers import EXPLAINERS, ExplainerEntry
from dprotonet.interpretation.mdm import preset
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.interpretation.outputs import GivenTask

CLASSES, COUNT, SIZE = 5, 3, (32, 40)
LABELS = [4, 0, 2]
TOLERANCE = 1e-4
PRESETS = {
    "paper": preset("paper", iterations=6, sizes=(4, 7), sparsity=1.0),
    "fast": preset("fast", iterations=6, sizes=(5, 6)),
    "instant": preset("instant", sizes=(5, 6)),
    "best": preset("best", iterations=9),
    "sampled": preset("sampled", samples=40, block=15, sizes=(4, 6)),
}
OTHERS = [name for name in EXPLAINERS if name != "mdm"]
NAMES = [*PRESETS, *OTHERS]  # every line of the table, mdm by every preset
ASKING = [name for name in NAMES if name in PRESETS or EXPLAINERS[name].asks]
SIGNED = [name for name in ASKING if name in PRESETS or EXPLAINERS[name].signed]
MASKED = list(PRESETS)
SMALL: dict[str, dict[str, Any]] = {
    "rise": {"samples": 40, "grid": 5},
    "ig": {"samples": 6},
    "smoothgrad": {"samples": 6},
    "occlusion": {"windows": 4, "share": 0.4},
    "lime": {"samples": 60, "grid": 5},
    "kernelshap": {"samples": 60, "grid": 5},
    "extremal": {"steps": 8, "areas": (0.2, 0.4)},
}
SPECIES = ("finch", "lark", "robin", "swift", "wren")


class Attending(nn.Module):
    """A transformer's block without the perceptron: every place looks at every place, in two heads."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(tokens)).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        return tokens + self.proj(attended.transpose(1, 2).flatten(2))


class Net(nn.Module):
    """All that behaves otherwise in training: BatchNorm, dropout, an activation in place; and attention."""

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
        self.blocks = nn.Sequential(Attending(12))
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(12, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean = torch.randn(module.num_features) / 4
                module.running_var = torch.rand(module.num_features) / 4 + 0.1
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.blocks(self.features(images).flatten(2).mT)
        return 5 * self.head(self.dropout(tokens.mean(dim=1)))


Explain = Callable[..., list[Explanation]]


def entry_of(name: str) -> ExplainerEntry:
    """The line of the table; an explainer that takes long by default takes less here."""
    entry = EXPLAINERS["mdm" if name in PRESETS else name]
    return replace(entry, settings={**entry.settings, **SMALL.get(name, {})})


def made(
    name: str,
    model: nn.Module | Callable[[Tensor], Tensor],
    size: tuple[int, int] = SIZE,
    batch: int = 32,
    *,
    classes: Sequence[str] = SPECIES,
    task: GivenTask = None,
) -> Explainer:
    """By the table, of plain arguments."""
    offered = {"preset": PRESETS.get(name), **prototypes(model, size)}
    by = entry_of(name).make(model, offered, classes=classes, task=task)
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
