"""Networks that forget, layer by layer: the sanity check of Adebayo et al. (2018).

A map that stays the same while the network's weights are replaced by random ones, from the output towards the
input, explains the image and not the network. Here are the networks; maps of them any explainer makes, and
how alike they remain a rank correlation says.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.nodes import precision


class Stage(NamedTuple):
    """A network whose layer `name`, and every later one, is random."""

    name: str
    model: nn.Module


@torch.no_grad()
def cascade(
    model: nn.Module, *, seed: int, images: Tensor | None = None, stages: int | None = None
) -> Iterator[Stage]:
    """Copies of the model, each with one more random layer, the last layer first; `model` is left alone.

    A layer is a module with parameters of its own. Layers are taken in the reverse order of registration; for
    a network that is written down as it runs, that is from output to input. Each is initialised by its own
    `reset_parameters`; parameters that this leaves as they were, or that have none (a transformer's tokens,
    prototypes), have their values shuffled. A parameter of one number, or of equal ones, cannot be.

    BatchNorm's running statistics describe activations that no longer exist. They are reset with their layer,
    to 0 and 1; but then, as with the old ones, the signal may die away in a deep network, whose map is noise
    for that reason alone. With `images` (N, C, H, W), a dozen or so, they are measured on these instead.
    Other buffers stay. `stages` yields so many of the copies, evenly spread, the last one among them.
    """
    forgetful, forgotten = deepcopy(model), []
    generator = torch.Generator().manual_seed(seed)
    layers = [
        (name, layer)
        for name, layer in reversed(list(forgetful.named_modules()))
        if list(layer.parameters(recurse=False))
    ]
    shown = _spread(len(layers), stages)
    for place, (name, layer) in enumerate(layers):
        _forget(layer, int(torch.randint(2**31, (), generator=generator)))
        forgotten.append(layer)
        if place not in shown:
            continue
        if images is not None:
            _measure(forgetful, [norm for norm in forgotten if isinstance(norm, _BatchNorm)], images)
        own = ", ".join(key for key, _ in layer.named_parameters(recurse=False))
        yield Stage(name or own, deepcopy(forgetful))


def _spread(count: int, stages: int | None) -> set[int]:
    """Places of `stages` of so many layers; the first and the last are among them."""
    if stages is None or stages >= count:
        return set(range(count))
    if stages == 1:
        return {count - 1}
    return {round(number * (count - 1) / (stages - 1)) for number in range(stages)}


def _forget(layer: nn.Module, seed: int) -> None:
    """New values for a layer's own parameters and statistics, drawn on the CPU: the same on every device."""
    fresh = deepcopy(layer).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if callable(reset := getattr(fresh, "reset_parameters", None)):
            reset()
        for (_, old), (_, new) in zip(_own(layer), _own(fresh), strict=True):
            if isinstance(old, nn.Parameter) and torch.equal(old.cpu(), new):
                _shuffle(new)
            old.copy_(new)


def _own(layer: nn.Module) -> list[tuple[str, Tensor]]:
    return [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]


def _shuffle(values: Tensor) -> None:
    """In place, along one random cycle through all values: none stays, so it shows unless all are equal."""
    order, flat = torch.randperm(values.numel()), values.flatten()
    flat[order] = flat[order.roll(1)]
    values.copy_(flat.view_as(values))


def _measure(model: nn.Module, norms: list[_BatchNorm], images: Tensor) -> None:
    """Statistics of these layers from one pass of the images; all else is frozen."""
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    with borrowed(model):
        for norm in norms:
            norm.training, norm.momentum = True, 1.0
        model(images.to(precision(model)))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
