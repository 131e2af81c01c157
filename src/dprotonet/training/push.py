"""The push on a real network and data set: two passes of loading around `inference.projection`.

An image is encoded once however many prototypes look at it, and its augmentations only if it became a
source. Processes share the images; sums and minima are merged exactly.
"""

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from dprotonet.errors import ComputationError
from dprotonet.inference.pool import SlotHead
from dprotonet.inference.presence import ChannelMaximum, PresenceHead
from dprotonet.inference.projection import (
    NOTHING,
    MultiImageMean,
    Sources,
    SourceSearch,
    collapsed_prototypes,
)
from dprotonet.network import DProtoNet
from dprotonet.training.evaluation import share_of
from dprotonet.training.views import Keys, ProcessShare, ViewSource, chunks, load, plain_batches


@dataclass(frozen=True)
class Projection:
    """Where the prototypes came from: index, region and distance of the nearest source (P,), and all sources.

    The views of source i are its variants 0 … views-1; with the augmentation seed they can be made again.
    """

    index: Tensor
    region: Tensor
    distances: Tensor
    views: int
    sources: Tensor  # (P, S), NOTHING where the class had fewer images
    collapsed: Tensor  # (P,) bool


@dataclass(frozen=True)
class Pusher:
    """How to push: `images` is M of multi-image prototype learning, 1 being the single-image push.

    `sources` is how many images of the class are mixed, M views of each.
    """

    accelerator: Accelerator
    images: int = 40
    sources: int = 1
    batch: int = 60
    workers: int = 0

    @torch.no_grad()
    def __call__(self, network: DProtoNet, views: ViewSource) -> Projection:
        """Replace the network's prototypes (in eval mode) by mean region vectors of their sources.

        Prototypes that are channels stay what they are: only their sources are found.
        """
        was_training = network.training
        network.eval()
        sources = self._sources(network, views)
        if (sources.index[:, 0] == NOTHING).any():
            raise ComputationError("a prototype found no region of its class: are all features finite?")
        count = self.images if views.augmentations is None else min(self.images, 1 + views.augmentations)
        vectors: Tensor = network.prototypes.vectors
        if not isinstance(network.prototypes.assignment, ChannelMaximum):
            vectors = self._means(network, views, sources=sources, count=count)
            network.prototypes.vectors.copy_(vectors)
        network.train(was_training)
        if isinstance(network.head, (PresenceHead, SlotHead)):
            network.name_classes(torch.as_tensor(views.labels)[sources.index[:, 0].cpu()])
        collapsed = collapsed_prototypes(vectors, network.prototype_class)
        nearest = {name: part[:, 0].cpu() for name, part in vars(sources).items()}
        return Projection(**nearest, views=count, sources=sources.index.cpu(), collapsed=collapsed.cpu())

    def _sources(self, network: DProtoNet, views: ViewSource) -> Sources:
        allowed = network.head.sources(network.prototype_class)
        search = SourceSearch(network.prototypes, self.sources, sources=allowed)
        batches = plain_batches(len(views), batch=self.batch, share=self._share)
        for view in load(views, batches, workers=self.workers):
            regions = self._encoded(network, view.inputs)
            search.update(regions, self._here(view.label), self._here(view.index))
        together = SourceSearch(network.prototypes, self.sources)
        for found in gather_object([[part.cpu() for part in vars(search.sources()).values()]]):
            together.merge(Sources(*map(self._here, found)))
        return together.sources()

    def _means(self, network: DProtoNet, views: ViewSource, *, sources: Sources, count: int) -> Tensor:
        mean = MultiImageMean(network.prototypes, sources)
        images = sources.index[sources.index != NOTHING].unique().tolist()
        keys = Keys.each(images, count)
        for view in load(views, chunks(self._share.of(keys), self.batch), workers=self.workers):
            mean.update(self._encoded(network, view.inputs), self._here(view.index))
        parts = gather_object([(mean.total, mean.count)])
        mean.total = torch.stack([total for total, _ in parts]).sum(0)
        mean.count = torch.stack([seen for _, seen in parts]).sum(0)
        return mean.vectors()

    @property
    def _share(self) -> ProcessShare:
        return share_of(self.accelerator)

    def _here(self, values: object) -> Tensor:
        return torch.as_tensor(values).to(self.accelerator.device)

    def _encoded(self, network: DProtoNet, inputs: Tensor) -> Tensor:
        with self.accelerator.autocast():
            regions: Tensor = network.encoder(inputs.to(self.accelerator.device))
        return regions.float()
