"""Logits of a whole split, exact across processes: no image dropped, none counted twice."""

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from dprotonet.metrics.classification import accuracy, balanced_accuracy, confusion_matrix
from dprotonet.metrics.several_labels import label_accuracy, mean_average_precision
from dprotonet.progress import Progress
from dprotonet.training.views import ProcessShare, ViewSource, label_tensor, load, plain_batches


@dataclass(frozen=True)
class Predictions:
    """Logits (N, C) and labels (N,) in the order of the data set, on the CPU; of several labels (N, L)."""

    logits: Tensor
    labels: Tensor

    @property
    def several(self) -> bool:
        """Whether an image may have several labels, or none."""
        return self.labels.ndim == 2

    @property
    def confusion(self) -> Tensor:
        return confusion_matrix(self.labels, self.logits.argmax(1), self.logits.shape[1])

    @property
    def accuracy(self) -> float:
        """Share of right answers; of several labels that of right yes and no."""
        return label_accuracy(self.logits, self.labels) if self.several else accuracy(self.confusion)


@dataclass(frozen=True)
class Validation:
    """Answers to the validation images, and what they come to."""

    predictions: Predictions
    balanced: bool = False  # judged by balanced accuracy

    @property
    def accuracy(self) -> float:
        return self.predictions.accuracy

    @property
    def loss(self) -> float:
        found = self.predictions
        if found.several:
            return binary_cross_entropy_with_logits(found.logits, found.labels).item()
        return cross_entropy(found.logits, found.labels).item()

    @property
    def judged(self) -> float:
        """What the model that is kept is chosen by."""
        if self.predictions.several:
            found = mean_average_precision(self.predictions.logits, self.predictions.labels)
            return self.accuracy if found != found else found  # no validation image has any label
        return balanced_accuracy(self.predictions.confusion) if self.balanced else self.accuracy


def share_of(accelerator: Accelerator) -> ProcessShare:
    return ProcessShare(accelerator.process_index, accelerator.num_processes)


@torch.no_grad()
def evaluate(
    network: nn.Module,
    views: ViewSource,
    *,
    accelerator: Accelerator,
    batch: int = 60,
    workers: int = 0,
    on_batch: Progress | None = None,
) -> Predictions:
    """Run the network in eval mode over the plain images of a split; every process gets all logits."""
    was_training = network.training
    network.eval()
    batches = plain_batches(len(views), batch=batch, share=share_of(accelerator))
    logits, index = [], []
    for number, view in enumerate(load(views, batches, workers=workers), start=1):
        with accelerator.autocast():
            logits.append(network(view.inputs.to(accelerator.device)).float().cpu())
        index.append(torch.as_tensor(view.index))
        if on_batch is not None:
            on_batch(number, len(batches))
    network.train(was_training)
    return _in_order(logits, index, views)


def _in_order(logits: list[Tensor], index: list[Tensor], views: ViewSource) -> Predictions:
    pieces = gather_object(list(zip(index, logits, strict=True)))
    where = torch.cat([piece[0] for piece in pieces])
    rows = torch.cat([piece[1] for piece in pieces])
    ordered = torch.empty_like(rows)
    ordered[where] = rows
    if len(where) != len(views) or len(where.unique()) != len(views):
        raise AssertionError(f"{len(where)} predictions for {len(views)} images")
    return Predictions(ordered, label_tensor(views.labels))
