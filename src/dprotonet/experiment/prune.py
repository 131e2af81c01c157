"""A run without the prototypes whose nearest training images are of other classes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.data.transforms import Views
from dprotonet.errors import UserError
from dprotonet.experiment.build import build_splits
from dprotonet.experiment.model import Model
from dprotonet.experiment.run_folder import RunFolder
from dprotonet.inference.prune import NearestImages, PruneRule, kept_prototypes, pruned
from dprotonet.network import DProtoNet
from dprotonet.training.views import Share, load, plain_batches

Progress = Callable[[int, int], None]
_BATCH = 60


@dataclass(frozen=True)
class Pruning:
    """The smaller model, and which prototypes of the old one it has."""

    model: Model
    kept: tuple[int, ...]
    dropped: tuple[int, ...]


def prune_model(
    model: Model, train: ImageData, *, rule: PruneRule | None = None, on_progress: Progress | None = None
) -> Pruning:
    """Judge every prototype on the training images the model learned from; the model itself stays."""
    rule = rule or PruneRule()
    network = model.prototyped
    if tuple(train.classes) != model.classes:
        raise UserError("the data has other classes than the run; prune on the images it was trained on")
    kept = _kept(model, train, rule, on_progress)
    parts = pruned(network.prototypes, network.head, kept)
    numbers = kept.nonzero().squeeze(1).tolist()
    records = [replace(model.prototypes[old], prototype=new) for new, old in enumerate(numbers)]
    smaller = DProtoNet(network.encoder, parts.prototypes, parts.head)
    made = Model(smaller, config=model.config, classes=model.classes, prototypes=records)
    made.folder = model.folder
    dropped = (~kept).nonzero().squeeze(1).tolist()
    return Pruning(made, tuple(numbers), tuple(dropped))


def prune_run(
    model: Model, out: Path, *, rule: PruneRule | None = None, on_progress: Progress | None = None
) -> Pruning:
    """Prune on the data the run was trained on, into a run folder of its own, pictures included."""
    RunFolder(out).check_free(overwrite=False)
    train = build_splits(model.config.data).train
    pruning = prune_model(model, train, rule=rule, on_progress=on_progress)
    pruning.model.save_pretrained(out)
    return pruning


@torch.no_grad()
def _kept(model: Model, train: ImageData, rule: PruneRule, on_progress: Progress | None) -> Tensor:
    network = model.prototyped
    owner = network.prototype_class
    found = NearestImages(len(owner), nearest=min(rule.nearest, len(train)), device=owner.device)
    batches = plain_batches(len(train), batch=_BATCH, share=Share())
    views = Views(train, model.normalise, augment=None, seed=0)
    for number, view in enumerate(load(views, batches, workers=0), start=1):
        inputs, labels = view.inputs.to(owner.device), torch.as_tensor(view.label).to(owner.device)
        found.update(network.evidence(inputs).distances, labels)
        if on_progress is not None:
            on_progress(number, len(batches))
    return kept_prototypes(found.of_own_class(owner), owner, least=rule.least).cpu()
