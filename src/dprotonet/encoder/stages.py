"""A backbone in two: its first stages, which stay frozen, and the rest, which learns.

The first stages of a classifier are most of its work and few of its weights (EfficientNet-Lite0 to stride 8:
nine tenths and one sixtieth), and edges and colours need no learning again. What they make of a view never
changes, so it is computed once and kept, as frozen mode keeps whole feature maps. Both halves share their
parameters with the backbone that they were cut from.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.encoder.backbone import Backbone, dry_run, resting, trunk_name
from dprotonet.errors import UserError


class Divided(NamedTuple):
    """`rest(first(images))` is what the whole backbone makes of images."""

    first: "FirstStages"
    rest: Backbone


class FirstStages(nn.Module):
    """Images to what the stage at `boundary` gives, in whatever layout the trunk hands it on."""

    def __init__(self, trunk: nn.Module, boundary: str) -> None:
        super().__init__()
        self.trunk = trunk
        self.boundary = boundary

    def forward(self, images: Tensor) -> Tensor:
        handle = self.trunk.get_submodule(self.boundary).register_forward_hook(_stop)
        described: Any = self.trunk
        try:
            described.forward_features(images)
        except _Reached as reached:
            return reached.output
        finally:
            handle.remove()
        raise RuntimeError(f"{trunk_name(self.trunk)} never came to {self.boundary}")


def divided(backbone: Backbone, stages: int, *, image_size: int) -> Divided:
    """Cut after the first `stages` resolutions; a UserError where this trunk cannot be cut there."""
    boundary = _boundary(backbone, stages)
    path = boundary.split(".")
    with torch.no_grad(), resting(backbone):
        order = _order_of_calls(backbone, path, image_size)
        found = Divided(
            FirstStages(_cut(backbone.trunk, path, order, keep_first=True), boundary),
            _with_trunk(backbone, _cut(backbone.trunk, path, order, keep_first=False)),
        )
        if not _same(backbone, found, image_size):
            raise UserError(
                f"{trunk_name(backbone.trunk)} cannot be divided after {stages} stages: what follows looks "
                "at more than the last of them; give --frozen-stages 0"
            )
    return found


class _Reached(Exception):
    """Ends a forward pass where the first stages end."""

    def __init__(self, output: Tensor) -> None:
        super().__init__("reached")
        self.output = output


def _stop(module: nn.Module, inputs: object, output: Tensor) -> None:
    raise _Reached(output)


def _boundary(backbone: Backbone, stages: int) -> str:
    """The module that ends the first `stages` resolutions."""
    infos = getattr(backbone.trunk, "feature_info", None) or []
    names = [str(info["module"]) for info in infos]
    if not 1 <= stages < len(names):
        most = f"it has {len(names)}, so at most {len(names) - 1}" if len(names) > 1 else "it names none"
        raise UserError(
            f"--frozen-stages is {stages}, but of the stages of {trunk_name(backbone.trunk)} some must "
            f"learn ({most}); to freeze all give --mode frozen"
        )
    return names[stages - 1]


def _order_of_calls(backbone: Backbone, path: Sequence[str], image_size: int) -> Mapping[str, list[str]]:
    """The children along the path to the boundary, by their parent, in the order they are called in."""
    order: dict[str, list[str]] = {}
    handles = []
    for depth in range(len(path)):
        parent = ".".join(path[:depth])
        called = order.setdefault(parent, [])
        for name, child in backbone.trunk.get_submodule(parent).named_children():

            def note(*_: object, name: str = name, called: list[str] = called) -> None:
                called.append(name)

            handles.append(child.register_forward_pre_hook(note))
    try:
        described: Any = backbone.trunk  # levels that are joined are asked for otherwise, but in this order
        dry_run(described.forward_features, backbone.trunk, backbone.in_channels, image_size)
    finally:
        for handle in handles:
            handle.remove()
    return order


def _cut(
    module: nn.Module,
    path: Sequence[str],
    order: Mapping[str, list[str]],
    *,
    keep_first: bool,
    parent: str = "",
) -> nn.Module:
    """A copy that shares all parameters, without the children before the boundary, or those behind it."""
    head, *further = path
    half = copy.copy(module)
    half._modules = dict(module._modules)
    called = order[parent]
    earlier = set(called[: called.index(head)]) if head in called else set()
    for name in module._modules:
        if name == head:
            continue
        if (name in earlier) != keep_first:
            half._modules[name] = _nothing()
    if further:
        inner = f"{parent}.{head}" if parent else head
        half._modules[head] = _cut(
            module.get_submodule(head), further, order, keep_first=keep_first, parent=inner
        )
    elif not keep_first:
        half._modules[head] = _nothing()
    return half


def _nothing() -> nn.Module:
    """Hands on what it is given; a sequence, as some trunks go through the layers of a stage themselves."""
    return nn.Sequential()


def _with_trunk(backbone: Backbone, trunk: nn.Module) -> Backbone:
    other = copy.copy(backbone)
    other._modules = {**backbone._modules, "trunk": trunk}
    return other


def _same(backbone: Backbone, halves: Divided, image_size: int) -> bool:
    like = next(backbone.parameters())
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(1, backbone.in_channels, image_size, image_size, generator=generator).to(like)
    try:
        twice = halves.rest(halves.first(images))
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError, AssertionError):
        return False
    return torch.allclose(twice, backbone(images), rtol=1e-3, atol=1e-4)
