"""Mosaics of images that a network is sure of, to ask whether heatmaps are about the class."""

from collections.abc import Iterator
from itertools import islice

import torch

from dprotonet.data.base import ImageData, image_of
from dprotonet.data.mosaic import TILES, Mosaics, Tile, questions
from dprotonet.errors import UserError
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.outputs import Outputs
from dprotonet.percent import percent
from dprotonet.progress import Progress

SURE = 0.5  # a tile's probability at least, seen alone: of a class that it does not see, a map means nothing
_BATCH = 32


def mosaics_of(
    classifier: Classifier,
    data: ImageData,
    limit: int | None,
    on_progress: Progress = lambda done, total: None,
) -> Mosaics:
    """At most `limit` questions, from images in an order that is always the same.

    A tile stands for the class that the network predicts for it alone, so images need no classes.
    """
    if classifier.task.kind == "regression":
        raise UserError("a mosaic asks for classes, and a regression has none; leave --mosaic out")
    if len(classifier.classes) < 2:
        raise UserError("a mosaic needs two classes at least, and the network has only one")
    tiles = _sure_tiles(classifier, data, on_progress)
    found = list(islice(questions(tiles, classes=len(classifier.classes)), limit))
    if not found:
        raise UserError(
            f"no mosaic could be made: it takes {TILES} images of {min(TILES, len(classifier.classes))} "
            f"classes that the network gives {percent(SURE, 0)} at least, and of {len(data)} images too few "
            "are such"
        )
    return Mosaics(data, classifier.classes, found)


def _sure_tiles(classifier: Classifier, data: ImageData, on_progress: Progress) -> Iterator[Tile]:
    drawn = torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).split(_BATCH)
    outputs = Outputs(classifier.module, classifier.task)
    device, seen = next(classifier.module.parameters()).device, 0
    for rows in drawn:
        images = torch.stack([image_of(data, index) for index in rows.tolist()])
        with borrowed(classifier.module), torch.no_grad():
            shares = outputs.watched(classifier.normalise(images).to(device))
        best = shares.max(dim=1)
        seen += len(rows)
        on_progress(seen, len(data))
        for index, probability, label in zip(rows.tolist(), *(part.tolist() for part in best), strict=True):
            if probability >= SURE:
                yield Tile(index, label)
