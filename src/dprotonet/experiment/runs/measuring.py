"""Measuring, while a run is trained, which images it knows: by features and by distances to prototypes.

A frozen backbone's features are computed once, before training, and kept on disk like its feature maps. One
that learns is looked at whenever a better model is kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor

from dprotonet.data.subset import Subset
from dprotonet.data.transforms import Views
from dprotonet.encoder.backbone import Backbone
from dprotonet.encoder.level_averages import LevelAverages, Levels, every_level
from dprotonet.experiment.runs.familiarity import Familiarity, familiarity_of, known_distances
from dprotonet.experiment.runs.known_features import (
    MeasuredFeatures,
    evenly,
    level_averages,
    measured_features,
)
from dprotonet.network import Network
from dprotonet.training.features import FeatureCache, FeatureViews
from dprotonet.training.views import ViewSource


@dataclass
class Measuring:
    """Of a network and the plain views of its training and validation images, of `image_size` pixels."""

    network: Network
    train: Views
    val: Views
    image_size: int
    frozen: bool
    batch: int
    _measured: MeasuredFeatures | None = None

    def prepare(self, cache: Path, accelerator: Accelerator, workers: int) -> Iterator[tuple[int, int]]:
        """Of a frozen backbone: all processes look at the images now, yielding (done, images in all)."""
        if not self.frozen:
            return
        found = []
        for views in (self.train, self.val):
            look = LevelAverages(self._backbone, self._levels.taken)
            device = self.network.head.weight.device
            kept = FeatureCache(cache, look, _evenly(views), 0, device, workers=workers)
            if len(views):
                yield from kept.build(accelerator)
            found.append(_plain(kept.open()) if len(views) else torch.empty(0, sum(self._levels.widths)))
        self._measured = measured_features(self._levels, *found, learned=False)

    def familiarity(self, network: Network, val: ViewSource) -> Familiarity | None:
        """From when on images are strange now; `network` has the prototypes and takes `val` as they are."""
        distances = known_distances(network, val, batch=self.batch)
        return familiarity_of(distances, self.network, features=self._measured or self._anew())

    def _anew(self) -> MeasuredFeatures:
        levels = self._levels
        found = [
            level_averages(self.network, views, levels, batch=self.batch) for views in (self.train, self.val)
        ]
        return measured_features(levels, *found, learned=not self.frozen)

    @property
    def _backbone(self) -> Backbone:
        backbone = self.network.encoder.backbone
        assert isinstance(backbone, Backbone)
        return backbone

    @property
    def _levels(self) -> Levels:
        return every_level(self._backbone, self.image_size)


def _evenly(views: Views) -> Views:
    """At most as many images as Gaussians are fitted to."""
    rows = evenly(len(views))
    return (
        views
        if len(rows) == len(views)
        else Views(Subset(views.data, rows), views.normalise, augment=None, seed=views.seed)
    )


def _plain(kept: FeatureViews) -> Tensor:
    """The averages (N, ΣC)."""
    return torch.stack([kept[index, 0].inputs for index in range(len(kept))])
