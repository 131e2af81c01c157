"""Measuring, while a run is trained, which images it knows: by features and by distances to prototypes.

A frozen backbone's features are kept on disk beside its feature maps. One that learns is looked at whenever a
better model is kept.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dprotonet.data.transforms import Views
from dprotonet.encoder.backbone import Backbone
from dprotonet.encoder.level_averages import Levels, every_level
from dprotonet.experiment.runs.familiarity import Familiarity, familiarity_of, known_distances
from dprotonet.experiment.runs.known_features import (
    MeasuredFeatures,
    evenly,
    level_averages,
    measured_features,
)
from dprotonet.network import Network
from dprotonet.training.features import FeatureViews
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

    def take(self, train: ViewSource, val: ViewSource) -> None:
        """Of a frozen backbone: what was seen of the images when their feature maps were made."""
        if self.frozen:
            found = (_averages(views, sum(self._levels.widths)) for views in (train, val))
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


def _averages(views: ViewSource, width: int) -> Tensor:
    """The averages (N, ΣC) of the plain images, of at most as many as Gaussians are fitted to."""
    assert isinstance(views, FeatureViews)
    kept = [views.beside[name] for name in ("averages", "pooled", "deviation")]
    rows = [np.concatenate([part[row, 0] for part in kept]) for row in evenly(len(views))]
    return torch.from_numpy(np.stack(rows)).float() if rows else torch.empty(0, width)
