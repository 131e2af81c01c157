"""A run without the prototypes whose nearest training images are of other classes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.split_evidence import check_split, split_evidence
from dprotonet.experiment.prototypes.what_if import without
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.inference.prune import NearestImages, PruneRule, kept_prototypes
from dprotonet.progress import Progress


@dataclass(frozen=True)
class Pruning:
    """The smaller model, and which prototypes of the old one it has."""

    model: TrainedModel
    kept: tuple[int, ...]
    dropped: tuple[int, ...]


def prune_model(
    model: TrainedModel,
    train: ImageData,
    *,
    rule: PruneRule | None = None,
    on_progress: Progress | None = None,
) -> Pruning:
    """Judge every prototype on the training images the model learned from; the model itself stays."""
    rule = rule or PruneRule()
    if model.config.network.ownership == "channels":
        raise UserError(
            "ProtoPNet's rule asks whose class the nearest images are, but this network's classes share "
            "their prototypes; name some with --drop, or those that mean several things with --purity"
        )
    check_split(model, train)
    kept = _kept(model, train, rule, on_progress)
    dropped = tuple((~kept).nonzero().squeeze(1).tolist())
    return Pruning(without(model, dropped), tuple(kept.nonzero().squeeze(1).tolist()), dropped)


@torch.no_grad()
def _kept(model: TrainedModel, train: ImageData, rule: PruneRule, on_progress: Progress | None) -> Tensor:
    network = model.prototyped
    owner = network.prototype_class
    found = NearestImages(len(owner), nearest=min(rule.nearest, len(train)), device=owner.device)
    for evidence, labels in split_evidence(model, train, on_progress):
        found.update(evidence.distances, labels)
    return kept_prototypes(found.of_own_class(owner), owner, least=rule.least).cpu()
