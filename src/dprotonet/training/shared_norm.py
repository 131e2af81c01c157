"""BatchNorm over the images of all processes, as one process would have them in its batch.

PyTorch's own SyncBatchNorm is for GPUs only.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.modules.batchnorm import _BatchNorm


def share_statistics(network: nn.Module) -> None:
    """Let every BatchNorm that learns take mean and variance over the images of all processes."""
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            plain: Callable[[Tensor], Tensor] = type(module).forward.__get__(module)
            module.forward = partial(_forward, module, plain)  # type: ignore[method-assign]


def _forward(norm: _BatchNorm, plain: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    if not norm.training:
        return plain(inputs)
    others = [axis for axis in range(inputs.dim()) if axis != 1]
    shape = [1, -1, *[1] * (inputs.dim() - 2)]
    values = inputs.float()
    count = _sum(values.new_full((1,), values.numel() / values.shape[1]))
    mean = _sum(values.sum(others)) / count
    centred = values - mean.reshape(shape)
    variance = _sum(centred.square().sum(others)) / count
    _remember(norm, mean.detach(), (variance * count / (count - 1)).detach())
    normal = centred * (variance + norm.eps).rsqrt().reshape(shape)
    if norm.affine:
        normal = normal * norm.weight.reshape(shape) + norm.bias.reshape(shape)
    normal = normal.to(inputs.dtype)
    for part in ("drop", "act"):  # of timm's BatchNorm with an activation
        normal = getattr(norm, part)(normal) if hasattr(norm, part) else normal
    return normal


def _sum(mine: Tensor) -> Tensor:
    """Over all processes; gradients flow to each."""
    total: Tensor = all_reduce(mine)
    return total


@torch.no_grad()
def _remember(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Running statistics, as BatchNorm keeps them."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked += 1
    share = norm.momentum
    if share is None:  # a mean over all batches
        share = 1 / float(norm.num_batches_tracked or 1)
    norm.running_mean.lerp_(mean.to(norm.running_mean), share)
    norm.running_var.lerp_(variance.to(norm.running_var), share)
