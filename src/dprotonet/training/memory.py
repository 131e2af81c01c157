"""What a training step holds in memory, and how to hold less: pieces, recomputed activations, a clear error.

Nearly all of it are activations that the backbone's backward pass will want back, in proportion to the images
computed at a time (docs/training.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _BatchNorm

from dprotonet.data.transforms import View
from dprotonet.encoder.backbone import Backbone, dry_run, resting, trunk_name
from dprotonet.encoder.levels import JoinedLevels
from dprotonet.errors import ComputationError, UserError
from dprotonet.training.views import PairView

_WORTHWHILE = 0.9  # of what was kept before; trunks that listen keep a fifth to a half
_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed", "bad_alloc")


class Piece(NamedTuple):
    """Some images of a batch, and their share of it. Losses times shares add up to the loss of the batch."""

    inputs: Tensor
    labels: Tensor
    share: float
    places: Tensor | None = None  # of pairs of views


def in_pieces(view: View | PairView, count: int) -> list[Piece]:
    """A collated batch in `count` pieces of nearly one size, fewer where it has fewer images."""
    labels = torch.as_tensor(view.label)
    pieces = min(count, len(labels))
    places = view.places.tensor_split(pieces) if isinstance(view, PairView) else [None] * pieces
    split = zip(view.inputs.tensor_split(pieces), labels.tensor_split(pieces), places, strict=True)
    return [Piece(inputs, own, len(own) / len(labels), where) for inputs, own, where in split]


def checkpoint_activations(backbone: Backbone, *, image_size: int) -> None:
    """Let the trunk keep few activations and compute the others anew; an error if it cannot, or keeps all."""
    before = kept_bytes(backbone, image_size)
    try:
        recompute(backbone, True)
    except (AttributeError, AssertionError):
        raise _no_checkpoints(backbone, "another backbone") from None
    if kept_bytes(backbone, image_size) > _WORTHWHILE * before:  # some take it and do not listen
        joined = isinstance(backbone, JoinedLevels)  # a ResNet recomputes only on the way to its last map
        raise _no_checkpoints(backbone, "--levels 1 or another backbone" if joined else "another backbone")


def recompute(backbone: Backbone, enable: bool) -> None:
    """Whether the trunk computes activations anew that it could have kept."""
    trunk: Any = backbone.trunk
    trunk.set_grad_checkpointing(enable)


def lay_out(backbone: nn.Module, memory_format: str, device: torch.device) -> None:
    """Let weights lie `channels_last` where asked for, or where it pays; activations follow their weights."""
    fast = device.type == "cpu"  # 1.6 times, docs/training.md; GPUs were not measured
    if memory_format == "channels_last" or (memory_format == "auto" and fast):
        backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _no_checkpoints(backbone: Backbone, other: str) -> UserError:
    return UserError(
        f"{trunk_name(backbone.trunk)} cannot recompute its activations; leave --checkpoint-activations out "
        f"and give --accumulate, or choose {other}"
    )


def kept_bytes(backbone: Backbone, image_size: int) -> int:
    """What a forward pass of one image keeps for the backward pass, weights included."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), resting(backbone), saved_tensors_hooks(keep, lambda tensor: tensor):
        result = dry_run(backbone, backbone.trunk, backbone.in_channels, image_size)
        del result
    return sum(kept.values())


@contextmanager
def statistics_at_rest(module: nn.Module) -> Iterator[None]:
    """For a backward pass that computes activations anew: a batch must not count twice in BatchNorm."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        norm.num_batches_tracked = None if norm.num_batches_tracked is None else norm.num_batches_tracked + 0
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a GPU (CUDA, MPS or another) or on the CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)


@contextmanager
def memory_remedies(*, batch: int, accumulate: int, joint: bool) -> Iterator[None]:
    """Turn a failed allocation into an error that names the settings to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, ComputationError) or not is_out_of_memory(error):
            raise
        at_once = -(-batch // accumulate)
        more = ", --checkpoint-activations" if joint else ""
        raise ComputationError(
            f"out of memory with {at_once} images at a time; give --accumulate {4 * accumulate} (the same "
            f"steps, in smaller pieces){more}, --mixed-precision bf16 or a smaller --batch-size than {batch}"
        ) from error
