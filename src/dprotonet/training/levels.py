"""The projection of joined levels, fitted once before anything else and kept beside the frozen features.

It depends on images and weights only, so runs that differ in seed or settings share it, and the features that
are computed with it. Everything that is learned stands on it: a run that goes on takes it from its own model.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn

from dprotonet.data.transforms import Views
from dprotonet.encoder.levels import JoinedLevels
from dprotonet.training.checkpoint import load_tensors, load_weights, save_tensors, tensor_digest
from dprotonet.training.views import chunks, load

_BATCH = 32  # fixed: another number would add the same places in another order
_IN_A_MODEL = "encoder.backbone.projections."


def fitted_levels(
    backbone: nn.Module,
    views: Views,
    accelerator: Accelerator,
    folder: Path,
    *,
    model: Path | None = None,
    workers: int = 0,
) -> Iterator[tuple[int, int]]:
    """Fit the projection to plain images of `views`, yielding (images done, images in all).

    One process fits and all take over its numbers. What is in `model`, the weights of a run that goes on, or
    else in `folder` is not fitted again. A backbone of one level has nothing to be fitted.
    """
    if not isinstance(backbone, JoinedLevels):
        return
    if accelerator.is_main_process:
        path = folder / f"levels-{_key(backbone, views)}.safetensors"
        if model is not None and model.is_file():
            _put(backbone, _of_model(load_tensors(model)), model)
        elif path.is_file():
            _put(backbone, load_tensors(path), path)
        else:
            yield from _fit(backbone, views, accelerator, workers)
            save_tensors(path, backbone.projections.state_dict())
    for parameter in backbone.projections.parameters():
        parameter.data.copy_(broadcast(parameter.data))


def _fit(
    backbone: JoinedLevels, views: Views, accelerator: Accelerator, workers: int
) -> Iterator[tuple[int, int]]:
    total = min(backbone.joining.images, len(views))
    spread = np.linspace(0, len(views) - 1, total).round().astype(int).tolist()
    keys = [(index, 0) for index in spread]
    batches = load(views, chunks(keys, _BATCH), workers=workers)
    for done in backbone.fit(view.inputs.to(accelerator.device) for view in batches):
        yield done, total


def _key(backbone: JoinedLevels, views: Views) -> str:
    """Digest of all that the projection depends on."""
    facts = (views.data.fingerprint, views.normalise, backbone.joining, backbone.taken, backbone.kept)
    return tensor_digest(backbone.trunk.state_dict(), beginning="\n".join(map(str, facts)))


def _of_model(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The projections among the weights of a whole network."""
    return {
        name.removeprefix(_IN_A_MODEL): tensor
        for name, tensor in tensors.items()
        if name.startswith(_IN_A_MODEL)
    }


def _put(backbone: JoinedLevels, tensors: dict[str, Tensor], path: Path) -> None:
    load_weights(backbone.projections, tensors, path=path)
