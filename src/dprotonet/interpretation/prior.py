"""A first guess from inside the network, for a few passes and without naming a layer.

While the network runs, the deepest output that still has places is found by itself: a feature map
(B, C, h, w), the same with channels last, or a transformer's tokens. Its values times their gradient, summed
over channels, say where the node looks, coarsely (Grad-CAM's question, answered place by place). Enlarged
parts of the image are asked too, for finer places. This is a prior, not MDM: it starts the masks and steadies
them, and a network without such a map does without.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.interpretation.layout import Layout, layout_of
from dprotonet.interpretation.problem import Problem
from dprotonet.ops import upsample

_ALIVE = 0.25  # of its places must influence the node: a class token alone reads nothing from the others


class Found(NamedTuple):
    """The deepest output with places: its maker, how it lies, and where it speaks for the node (B, h, w)."""

    module: nn.Module
    layout: Layout
    heat: Tensor


def first_guess(problem: Problem, *, zoom: float = 1.0) -> Tensor | None:
    """Where the node looks, (N, H, W), above zero where a place speaks for it; None if there is no such map.

    With `zoom` above 1 the four quarters of the image enlarged by it, overlapping, are asked as well and
    every other one mirrored; their answers are laid side by side and added to that of the whole image.
    """
    whole = _heat(problem, problem.images)
    if whole is None or zoom <= 1:
        return whole
    parts = _of_parts(problem, zoom)
    return whole if parts is None else whole + parts


def _of_parts(problem: Problem, zoom: float) -> Tensor | None:
    height, width = problem.size
    large = round(height * zoom), round(width * zoom)
    enlarged = upsample(problem.images, large)
    total = enlarged.new_zeros(problem.count, *large)
    seen = enlarged.new_zeros(large)
    for number, (top, left) in enumerate(
        (y, x) for y in (0, large[0] - height) for x in (0, large[1] - width)
    ):
        place = (..., slice(top, top + height), slice(left, left + width))
        heat = _heat(problem, enlarged[place], mirrored=bool(number % 2))
        if heat is None:
            return None
        total[place] += heat
        seen[place] += 1
    mean = (total / seen.clamp_min(1)).unsqueeze(1)
    shrunk: Tensor = torch.nn.functional.interpolate(
        mean, size=(height, width), mode="bilinear", align_corners=False, antialias=True
    )
    return shrunk.squeeze(1)


def _heat(problem: Problem, images: Tensor, *, mirrored: bool = False) -> Tensor | None:
    """The deepest map's answer for one image a row, enlarged to the image, (N, H, W)."""
    found = []
    shown = images.flip(-1) if mirrored else images
    for block, rows in zip(shown.split(problem.batch), problem.rows.split(problem.batch), strict=True):
        deepest_one = deepest(problem, block, rows)
        if deepest_one is None:
            return None
        found.append(upsample(deepest_one.heat.relu(), problem.size))
    heat = torch.cat(found)
    return heat.flip(-1) if mirrored else heat


def deepest(problem: Problem, images: Tensor, rows: Tensor) -> Found | None:
    """The last output on the way to the node that has places and influences it from most of them."""
    with _outputs() as outputs:
        direction = problem.direction(images.detach().requires_grad_(True), rows)
    shape = (images.shape[-2], images.shape[-1])
    candidates = [
        (*entry, layout) for entry in outputs if (layout := layout_of(entry[1], shape, len(images)))
    ]
    if not candidates or not direction.requires_grad:
        return None
    gradients = torch.autograd.grad(
        direction.sum(), [output for _, output, _ in candidates], allow_unused=True
    )
    problem.count_backward(len(images))
    for (module, output, layout), gradient in reversed(list(zip(candidates, gradients, strict=True))):
        if gradient is not None and _is_alive(layout, gradient):
            return Found(module, layout, layout.places((output.detach() * gradient).float()))
    return None


@contextmanager
def _outputs() -> Iterator[list[tuple[nn.Module, Tensor]]]:
    """All tensors that modules put out in this thread while the context is open, in order."""
    seen: list[tuple[nn.Module, Tensor]] = []
    thread = threading.get_ident()

    def remember(module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.requires_grad and threading.get_ident() == thread:
            seen.append((module, output))

    handle = nn.modules.module.register_module_forward_hook(remember)
    try:
        yield seen
    finally:
        handle.remove()


def _is_alive(layout: Layout, gradient: Tensor) -> bool:
    return bool((layout.places(gradient.abs().float()) > 0).float().mean() >= _ALIVE)
