"""A run without the prototypes whose nearest training images are of other classes."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.experiment.model import Model
from dprotonet.experiment.run_folder import RunFolder
from dprotonet.experiment.split_evidence import Progress, check_split, split_evidence, splits_of_run
from dprotonet.inference.prune import NearestImages, PruneRule, kept_prototypes, pruned
from dprotonet.network import DProtoNet


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
    check_split(model, train)
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
    train = splits_of_run(model).train
    pruning = prune_model(model, train, rule=rule, on_progress=on_progress)
    pruning.model.save_pretrained(out)
    return pruning


@torch.no_grad()
def _kept(model: Model, train: ImageData, rule: PruneRule, on_progress: Progress | None) -> Tensor:
    network = model.prototyped
    owner = network.prototype_class
    found = NearestImages(len(owner), nearest=min(rule.nearest, len(train)), device=owner.device)
    for evidence, labels in split_evidence(model, train, on_progress):
        found.update(evidence.distances, labels)
    return kept_prototypes(found.of_own_class(owner), owner, least=rule.least).cpu()
