"""What if some prototypes were not there? Answered from the scores of a split, which are made once.

A prototype that is off says nothing: its column of the head counts as 0, and accuracy is one matrix product.
`without` takes prototypes out of a model for good, `cleaned` lets the last layer learn once more as well.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from dprotonet.config import TrainingConfig
from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.build.training import build_loss, build_stages
from dprotonet.experiment.prototypes.split_evidence import split_scores
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.inference.prune import pruned
from dprotonet.network import DProtoNet
from dprotonet.progress import Progress
from dprotonet.training.last_layer import LastLayer, train_head
from dprotonet.training.phases import Phase
from dprotonet.training.score_rows import ScoreRows
from dprotonet.training.scores import ScoreViews

Trained = TypeVar("Trained", bound=TrainedModel)


class WhatIf:
    """Scores (N, P) and labels (N,) of a split, and what the model makes of them with some off.

    Making one takes a pass over the images; everything after that milliseconds, or where the scores are too
    many for memory the time it takes to read them. `distances` (n, P) are of images that are evenly spread.
    """

    def __init__(self, model: TrainedModel, data: ImageData, *, on_progress: Progress | None = None) -> None:
        model.check_single()
        found = split_scores(model, data, on_progress)
        self.model, self.data = model, data
        self.scores, self.labels, self.distances = found

    def accuracy(self, off: Collection[int] = ()) -> float:
        """Share of the split's images that are classified right with these prototypes off."""
        return self.right(lambda scores: self.logits(scores, off))

    def right(self, answer: Callable[[Tensor], Tensor], scores: ScoreRows | None = None) -> float:
        """Share of the images that `answer` makes the right logits (B, C) for, from scores (B, P)."""
        found, weight = 0, self.model.network.head.weight
        for rows, some in (scores or self.scores).blocks():
            found += int((answer(some.to(weight)).argmax(dim=1).cpu() == self.labels[rows]).sum())
        return found / len(self.labels)

    @torch.no_grad()
    def logits(self, scores: Tensor, off: Collection[int] = ()) -> Tensor:
        """Logits (B, C) from scores (B, P) of any images with these prototypes off."""
        weight = self.model.network.head.weight
        if scores.ndim != 2 or scores.shape[1] != weight.shape[1]:
            raise ValueError(f"scores have shape {tuple(scores.shape)}; they must be (B, {weight.shape[1]})")
        on = kept_mask(self.model, off).to(weight)
        found: Tensor = scores.to(weight) @ (weight * on).T
        return found


_NAMED = 12  # prototypes in an error, of which a class that shares them may have hundreds


def kept_mask(model: TrainedModel, off: Collection[int]) -> Tensor:
    """Which prototypes (P,) are left, on the CPU; an error for one that does not exist."""
    count = len(model.prototyped.prototype_class)
    for number in off:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
            raise UserError(f"there is no prototype {number}; the run has 0 to {count - 1}")
    kept = torch.ones(count, dtype=torch.bool)
    kept[list(off)] = False
    return kept


def check_classes_left(model: TrainedModel, off: Collection[int]) -> None:
    """An error where a class would be left without prototypes: it could hardly be predicted again.

    Where classes share prototypes, those that speak for it count.
    """
    network, kept = model.prototyped, kept_mask(model, off)
    owned = network.head.owned(network.prototype_class).cpu()
    lost = (owned.any(dim=1) & ~owned[:, kept].any(dim=1)).nonzero().flatten().tolist()
    if lost:
        own = owned[lost[0]].nonzero().flatten().tolist()
        numbers = ", ".join(map(str, own[:_NAMED])) + ", …" * (len(own) > _NAMED)
        more = f" (and {len(lost) - 1} more classes)" if lost[1:] else ""
        raise UserError(
            f"class '{model.classes[lost[0]]}'{more} would be left without prototypes; "
            f"keep at least one of {numbers}"
        )


def without(model: Trained, off: Collection[int]) -> Trained:
    """A model without these prototypes, of the same kind; what is left and the given model are unchanged.

    The prototypes are numbered anew, in their order. Both models share the encoder.
    """
    check_classes_left(model, off)
    network, kept = model.prototyped, kept_mask(model, off)
    parts = pruned(network.prototypes, network.head, kept.to(network.prototype_class.device))
    old = kept.nonzero().flatten().tolist()
    records = [replace(model.prototypes[number], prototype=new) for new, number in enumerate(old)]
    smaller = DProtoNet(network.encoder, parts.prototypes, parts.head)
    made = type(model)(smaller, config=model.config, classes=model.classes, prototypes=records)
    made.folder = model.folder
    made.familiarity = None if model.familiarity is None else model.familiarity.without_prototypes()
    names = model.part_names
    made.part_names = {new: names[number] for new, number in enumerate(old) if number in names}
    return made


def cleaned(
    model: Trained,
    off: Collection[int],
    train: "ImageData | WhatIf",
    *,
    epochs: int | None = None,
    on_progress: Progress | None = None,
    on_epoch: Progress | None = None,
) -> Trained:
    """A model without these prototypes whose last layer learned again, from the training images alone.

    Loss, rate, batch and (unless told) `epochs` are those of the run's own last-layer stage, on the scores of
    the plain images. `train` may be a WhatIf of the training split, which spares the pass over the images.
    """
    if epochs is not None and epochs < 0:
        raise UserError(f"epochs is {epochs}; it must be 0 (the weights stay) or more")
    smaller = without(model, off)
    asked = train if isinstance(train, WhatIf) else WhatIf(model, train, on_progress=on_progress)
    if asked.model is not model:
        raise ValueError("the scores are of another model")
    views = ScoreViews(asked.scores.seen_by(kept_mask(model, off)), asked.labels.tolist())
    settings = last_layer(model, epochs)
    network = smaller.prototyped
    for epoch, _ in enumerate(train_head(network.head, views, network.prototype_class, settings=settings), 1):
        if on_epoch is not None:
            on_epoch(epoch, settings.epochs)
    return smaller


def last_layer(model: TrainedModel, epochs: int | None = None) -> LastLayer:
    """How the run's last layer learns; where it never does (NP-ProtoPNet), in no epochs unless told."""
    training: TrainingConfig = model.config.training
    stages = [
        stage for stage in build_stages(model.config) if isinstance(stage, Phase) and stage.name == "last"
    ]
    own = stages[0].epochs if stages else 0
    return LastLayer(
        epochs=own if epochs is None else epochs,
        rate=training.rate_head,
        batch=training.batch_size,
        seed=training.seed,
        loss=build_loss(training),
    )
