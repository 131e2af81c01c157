"""What a model says of every image of a split, batch by batch: the one pass that judging prototypes needs.

Facts, pruning and what-if all look at plain images in their order; none keeps more than it has to. Where the
backbone was frozen in training, its features are taken from training's cache if they are still there: half
precision, as the prototypes were learned from.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, Splits
from dprotonet.data.transforms import Views
from dprotonet.encoder.backbone import Backbone
from dprotonet.encoder.level_averages import seen_once
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.build.training import build_augment, default_cache
from dprotonet.experiment.runs.known_features import evenly
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.network import DProtoNet, Evidence
from dprotonet.progress import Progress
from dprotonet.training.features import FeatureCache
from dprotonet.training.score_rows import Room, ScoreRows
from dprotonet.training.views import ProcessShare, ViewSource, load, plain_batches

logger = logging.getLogger(__name__)

_BATCH = 60


class LabelledEvidence(NamedTuple):
    """Evidence of a batch and the labels (B,) of its images."""

    evidence: Evidence
    labels: Tensor


@torch.no_grad()
def split_evidence(
    model: TrainedModel,
    data: ImageData,
    on_progress: Progress | None = None,
    *,
    share: ProcessShare | None = None,
) -> Iterator[LabelledEvidence]:
    """Every batch of the split in order, or a share of them.

    `on_progress` hears of (images done, images in all).
    """
    device = model.prototyped.prototype_class.device
    views, network = _source(model, data)
    done = 0
    batches = plain_batches(len(data), batch=_BATCH, share=ProcessShare())
    for view in load(views, (share or ProcessShare()).of(batches), workers=0):
        labels = torch.as_tensor(view.label).to(device)
        yield LabelledEvidence(network.evidence(view.inputs.to(device)), labels)
        done += len(view.inputs)
        if on_progress is not None:
            on_progress(done, len(data))


class SplitScores(NamedTuple):
    """Scores (N, P) and labels (N,) of all images; distances (n, P) of those that `evenly` names."""

    scores: ScoreRows
    labels: Tensor
    distances: Tensor


def split_scores(model: TrainedModel, data: ImageData, on_progress: Progress | None = None) -> SplitScores:
    """One pass over the split; how much room the scores take is said before, if they go to disk."""
    check_split(model, data)
    rows, wanted = ScoreRows.empty(scores_room(model, len(data))), torch.tensor(evenly(len(data)))
    labels, distances, done = [], [], 0
    for item, named in split_evidence(model, data, on_progress):
        rows.put(done, item.scores)
        here = wanted[(wanted >= done) & (wanted < done + len(named))] - done
        distances.append(item.distances.float().cpu()[here])
        labels.append(named.cpu())
        done += len(named)
    return SplitScores(rows, torch.cat(labels), torch.cat(distances))


def scores_room(model: TrainedModel, images: int) -> Room:
    """What the scores of so many images take, which is said if they go to disk."""
    room = Room(images, len(model.prototyped.prototype_class), default_cache().parent)
    if room.on_disk:
        logger.warning("%s", room.told)
    return room


def _source(model: TrainedModel, data: ImageData) -> tuple[ViewSource, DProtoNet]:
    """Kept features with the network that takes them, or else images with the whole network."""
    network, training = model.prototyped, model.config.training
    if training.mode == "frozen":
        device, seed = network.prototype_class.device, model.config.data.data_seed
        assert isinstance(network.encoder.backbone, Backbone)
        seen = seen_once(network.encoder.backbone, model.config.data.image_size)
        for augment, count in (
            (build_augment(model.config.augmentation), training.augmentations),
            (None, 0),
        ):  # as of train, as of val
            views = Views(data, model.normalise, augment=augment, seed=seed)
            kept = FeatureCache(default_cache(), seen, views, count, device).kept()
            if kept is not None:
                return kept, network.without_backbone().eval()
    return Views(data, model.normalise, augment=None, seed=0), network


def check_split(model: TrainedModel, data: ImageData) -> None:
    """An error where prototypes cannot be judged on this data, before any work is done."""
    model.check_prototypes()
    if tuple(data.classes) != model.classes:
        raise UserError("the data has other classes than the run; use the data it was trained on")
    if not len(data):
        raise UserError("the split has no images to judge prototypes on")


def splits_of_run(
    model: TrainedModel, on_progress: Progress | None = None, *, moved_to: str | None = None
) -> Splits:
    """The data that the run was trained on, if it is still there or (a --data) where it has moved to."""
    config = model.config.data
    try:
        return build_splits(config if moved_to is None else replace(config, data=moved_to), on_progress)
    except UserError as error:
        if moved_to is not None:
            raise
        raise UserError(f"the run's data, {config.data}, cannot be read: {error}") from None
