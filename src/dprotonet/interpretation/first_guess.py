"""A first guess from inside the network, for a few passes and without naming a layer.

While the network runs, the deepest output that still has places is found by itself: a feature map
(B, C, h, w), the same with channels last, or a transformer's tokens. Its values times their gradient, summed
over channels, say where the node looks, coarsely: Grad-CAM's question, answered place by place; a prototype
network is asked what its evidence is made of instead of its logit. Enlarged parts of the image are asked
too, for finer places. This is a prior, not MDM: it starts the masks and steadies
them, and a network without such a map does without.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.interpretation.layout import Layout, layout_of
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.ops import upsample

_LAST = 8  # outputs among which the deepest one with features is looked for, where levels are
_ALIVE = 0.25  # of its places must influence the node: a class token alone reads nothing from the others


class DeepestOutput(NamedTuple):
    """The deepest output with places: its maker, how it lies, and where it speaks for the node (h, w)."""

    module: nn.Module
    layout: Layout
    heat: Tensor


def first_guess(task: MaskingTask, *, zoom: float = 1.0) -> Tensor | None:
    """Where the node looks, (N, H, W), above zero where a place speaks for it.

    NaN for an image whose node no map tells about, None if that is all of them. With `zoom` above 1 the four
    quarters of the image enlarged by it, overlapping, are asked as well and every other one mirrored; their
    answers are laid side by side and added to that of the whole image. Volumes are enlarged slice by slice.
    """
    views = _views(task, zoom)
    shown = torch.cat([view.image.flip(-1) if view.mirrored else view.image for view in views])
    heat = _heat(task, shown, task.rows.repeat(len(views))).unflatten(0, (len(views), task.count))
    whole, *parts = (
        answer.flip(-1) if view.mirrored else answer for view, answer in zip(views, heat, strict=True)
    )
    if whole.isnan().all():
        return None
    return whole + _laid_out(task, views[1:], parts) if parts else whole


class ImageWindow(NamedTuple):
    """The image (N, C, H, W), or an enlarged part of it whose upper left corner is at `place`."""

    image: Tensor
    place: tuple[int, int] = (0, 0)
    large: tuple[int, int] = (0, 0)
    mirrored: bool = False


def _views(task: MaskingTask, zoom: float) -> list[ImageWindow]:
    """The whole image, then its four enlarged quarters."""
    whole = ImageWindow(task.images)
    if zoom <= 1:
        return [whole]
    height, width = task.size[-2:]
    large = round(height * zoom), round(width * zoom)
    enlarged = upsample(task.images, large)
    corners = [(y, x) for y in (0, large[0] - height) for x in (0, large[1] - width)]
    return [
        whole,
        *(
            ImageWindow(
                enlarged[..., top : top + height, left : left + width], (top, left), large, bool(number % 2)
            )
            for number, (top, left) in enumerate(corners)
        ),
    ]


def _laid_out(task: MaskingTask, views: list[ImageWindow], answers: list[Tensor]) -> Tensor:
    """The answers of the parts side by side and shrunk, (N, H, W); where they overlap they fade over."""
    height, width = task.size[-2:]
    total = answers[0].new_zeros(task.count, *task.size[:-2], *views[0].large)
    seen = answers[0].new_zeros(views[0].large)
    for view, answer in zip(views, answers, strict=True):
        top, left = view.place
        place = (..., slice(top, top + height), slice(left, left + width))
        down, across = _fading(height, top, view.large[0]), _fading(width, left, view.large[1])
        weight = (down.unsqueeze(1) * across).to(total)
        total[place] += answer.nan_to_num(0.0) * weight
        seen[place] += weight
    mean = (total / seen.clamp_min(torch.finfo(seen.dtype).tiny)).unsqueeze(1).flatten(1, -3)
    shrunk: Tensor = torch.nn.functional.interpolate(
        mean, size=(height, width), mode="bilinear", align_corners=False, antialias=True
    )
    return shrunk.reshape(task.count, *task.size)


def _fading(length: int, start: int, whole: int) -> Tensor:
    """Weights (length,) of a part from `start` on, falling to nothing where it ends inside the whole.

    Without, the edges of the parts stay visible in the finished map. They fall over half of the overlap, so
    that in its middle two answers still steady each other.
    """
    places = torch.arange(length) + 0.5
    inside = (places if start > 0 else None, length - places if start + length < whole else None)
    fading = max((2 * length - whole) / 2, 1)
    weights = torch.ones(length)
    for distance in inside:
        weights = weights if distance is None else torch.minimum(weights, distance / fading)
    return weights


def _heat(task: MaskingTask, images: Tensor, rows: Tensor) -> Tensor:
    """The deepest map's answer for each image, enlarged to its size, (B, H, W); NaN where there is none."""
    silent = images.new_full(task.size, torch.nan)
    blocks = task.blocks(rows)
    found = [item for block in blocks for item in deepest(task, images[block], rows[block])]
    heat = [silent if item is None else upsample(item.heat.relu(), task.size) for item in found]
    return torch.stack(heat)[torch.cat(blocks).argsort()]


def deepest(
    task: MaskingTask, images: Tensor, rows: Tensor, *, rectified: bool = False, features: bool = False
) -> list[DeepestOutput | None]:
    """For each image the last output on the way to the node that influences it from most of its places.

    With `rectified`, the last of those that are nowhere negative; with `features`, of those that hold nothing
    but features: a module whose channels are shares of places says so (`only_features`).
    """
    with _outputs() as outputs:
        direction = task.direction(images.detach().requires_grad_(True), rows)
    best: list[DeepestOutput | None] = [None] * len(images)
    outputs = _without_heads(outputs)
    if not outputs or not direction.requires_grad:
        return best
    task.count_backward(len(images))
    for group in _from_the_end(outputs):
        candidates = _with_places(group, images)
        if rectified:
            candidates = [entry for entry in candidates if entry[1].min() >= 0]
        if features:
            candidates = [entry for entry in candidates if getattr(entry[0], "only_features", True)]
        if not candidates:
            continue
        gradients = torch.autograd.grad(
            direction.sum(), [output for _, output, _ in candidates], retain_graph=True, allow_unused=True
        )
        for (module, output, layout), gradient in zip(candidates, gradients, strict=True):
            lacking = [row for row, found in enumerate(best) if found is None]
            if gradient is None or not lacking:
                continue
            alive, heat = _alive(layout, gradient), layout.places((output.detach() * gradient).float())
            for row in lacking:
                best[row] = DeepestOutput(module, layout, heat[row]) if alive[row] else None
        if None not in best:
            break
    return best


def features_on_the_way(
    task: MaskingTask, images: Tensor, rows: Tensor, *, strides: Sequence[int]
) -> list[Tensor]:
    """What places add to the node, features · gradient, (B, h, w) at several levels, the deepest last.

    Of each stride the last features before the network first becomes coarser, and those which `deepest` is
    about. Levels that do not influence the node from most of their places are left out.
    """
    with _outputs() as outputs:
        direction = task.direction(images.detach().requires_grad_(True), rows)
    outputs = _without_heads(outputs)
    placed = [entry for entry in _with_places(outputs, images) if getattr(entry[0], "only_features", True)]
    if not placed or not direction.requires_grad:
        return []
    task.count_backward(len(images))
    chosen = {number: placed[number] for number in _on_the_way(placed, images.shape[-2], strides)}
    chosen |= {number: placed[number] for number in range(len(placed))[-_LAST:]}
    levels = dict(sorted(chosen.items()))
    gradients = torch.autograd.grad(
        direction.sum(), [output for _, output, _ in levels.values()], allow_unused=True
    )
    found = [
        (number, layout.places((output.detach() * gradient).float()))
        for (number, (_, output, layout)), gradient in zip(levels.items(), gradients, strict=True)
        if gradient is not None and bool(_alive(layout, gradient).all())
    ]
    wanted = {*_on_the_way(placed, images.shape[-2], strides), *(number for number, _ in found[-1:])}
    return [heat for number, heat in found if number in wanted]


def _on_the_way(
    placed: Sequence[tuple[nn.Module, Tensor, Layout]], height: int, strides: Sequence[int]
) -> list[int]:
    """The number of the last output of each stride before the first coarser one."""
    last: dict[int, int] = {}
    for number, (_, _, layout) in enumerate(placed):
        stride = round(height / layout.height)
        if not last or stride >= max(last):
            last[stride] = number
    return [last[stride] for stride in strides if stride in last]


Output = tuple[nn.Module, Tensor]


def _from_the_end(outputs: list[Output]) -> Iterator[list[Output]]:
    """The last few, then twice as many before them, and so on, each group backwards.

    The deepest map is rarely far from the end, and a gradient down to it costs a fraction of one down to the
    image.
    """
    end, size = len(outputs), 4
    while end > 0:
        yield outputs[max(0, end - size) : end][::-1]
        end, size = end - size, 2 * size


def _without_heads(outputs: list[Output]) -> list[Output]:
    """Without queries, keys and values (B, heads, N, d) of tokens (B, N, heads · d), which look like maps."""
    tokens = {(output.shape[1], output.shape[2]) for _, output in outputs if output.ndim == 3}
    return [
        (module, output)
        for module, output in outputs
        if output.ndim != 4 or (output.shape[2], output.shape[1] * output.shape[3]) not in tokens
    ]


def _with_places(outputs: list[Output], images: Tensor) -> list[tuple[nn.Module, Tensor, Layout]]:
    shape = tuple(images.shape[2:])
    lying = [item for item in outputs if getattr(item[0], "lies_on_the_image", True)]
    found = ((module, output, layout_of(output, shape, len(images))) for module, output in lying)
    return [(module, output, layout) for module, output, layout in found if layout is not None]


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
    return (layout.places(gradient.abs().float()) > 0).flatten(1).float().mean(dim=1) >= _ALIVE
