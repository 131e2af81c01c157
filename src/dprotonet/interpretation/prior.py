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
    """The deepest output with places: its maker, how it lies, and where it speaks for the node (h, w)."""

    module: nn.Module
    layout: Layout
    heat: Tensor


def first_guess(problem: Problem, *, zoom: float = 1.0) -> Tensor | None:
    """Where the node looks, (N, H, W), above zero where a place speaks for it.

    NaN for an image whose node no map tells about, None if that is all of them. With `zoom` above 1 the four
    quarters of the image enlarged by it, overlapping, are asked as well and every other one mirrored; their
    answers are laid side by side and added to that of the whole image.
    """
    whole = _heat(problem, problem.images)
    if whole.isnan().all():
        return None
    return whole + _of_parts(problem, zoom) if zoom > 1 else whole


def _of_parts(problem: Problem, zoom: float) -> Tensor:
    height, width = problem.size
    large = round(height * zoom), round(width * zoom)
    enlarged = upsample(problem.images, large)
    total = enlarged.new_zeros(problem.count, *large)
    seen = enlarged.new_zeros(large)
    corners = [(y, x) for y in (0, large[0] - height) for x in (0, large[1] - width)]
    for number, (top, left) in enumerate(corners):
        place = (..., slice(top, top + height), slice(left, left + width))
        total[place] += _heat(problem, enlarged[place], mirrored=bool(number % 2)).nan_to_num(0.0)
        seen[place] += 1
    mean = (total / seen.clamp_min(1)).unsqueeze(1)
    shrunk: Tensor = torch.nn.functional.interpolate(
        mean, size=(height, width), mode="bilinear", align_corners=False, antialias=True
    )
    return shrunk.squeeze(1)


def _heat(problem: Problem, images: Tensor, *, mirrored: bool = False) -> Tensor:
    """The deepest map's answer for one image a row, enlarged to the image, (N, H, W); NaN where none is."""
    shown = images.flip(-1) if mirrored else images
    silent = images.new_full(problem.size, torch.nan)
    heat = []
    for block, rows in zip(shown.split(problem.batch), problem.rows.split(problem.batch), strict=True):
        for found in deepest(problem, block, rows):
            heat.append(silent if found is None else upsample(found.heat.relu(), problem.size))
    return torch.stack(heat).flip(-1) if mirrored else torch.stack(heat)


def deepest(problem: Problem, images: Tensor, rows: Tensor) -> list[Found | None]:
    """For each image the last output on the way to the node that influences it from most of its places."""
    with _outputs() as outputs:
        direction = problem.direction(images.detach().requires_grad_(True), rows)
    shape = (images.shape[-2], images.shape[-1])
    candidates = [
        (*entry, layout) for entry in outputs if (layout := layout_of(entry[1], shape, len(images)))
    ]
    best: list[Found | None] = [None] * len(images)
    if not candidates or not direction.requires_grad:
        return best
    gradients = torch.autograd.grad(
        direction.sum(), [output for _, output, _ in candidates], allow_unused=True
    )
    problem.count_backward(len(images))
    for (module, output, layout), gradient in reversed(list(zip(candidates, gradients, strict=True))):
        lacking = [row for row, found in enumerate(best) if found is None]
        if gradient is None or not lacking:
            continue
        alive, heat = _alive(layout, gradient), layout.places((output.detach() * gradient).float())
        for row in lacking:
            best[row] = Found(module, layout, heat[row]) if alive[row] else None
    return best


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


def _alive(layout: Layout, gradient: Tensor) -> Tensor:
    """Which images' nodes an output influences from enough of its places, (B,)."""
    return (layout.places(gradient.abs().float()) > 0).float().mean(dim=(-2, -1)) >= _ALIVE
