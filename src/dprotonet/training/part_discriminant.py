"""Where the shaping nets of parts start: each as the projection that tells the classes apart by its part.

The same closed form as for a whole image (`training.discriminant`), part by part: covariances within classes
are shrunken towards that of all parts together, and all directions are kept, for the cosine wants them
whitened. The prototype of a part and a class starts as the class's mean, so that training begins with a
classifier that is as good as the discriminant, and a push has nothing to lose.
"""

import torch

from dprotonet.encoder.part_maps import WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import DProtoNet
from dprotonet.training.discriminant import every_view, whitened
from dprotonet.training.moments import Moments, moments_of
from dprotonet.training.views import ViewSource, chunks, label_tensor, load

_SHRINKAGE = 0.3  # towards a multiple of the unit matrix
_COMMON = 0.25  # towards the covariance of all parts
_FEW = 9  # classes


@torch.no_grad()
def start_parts_as_discriminants(
    network: DProtoNet, regions: Parts, views: ViewSource, *, batch: int = 60, device: torch.device
) -> None:
    """Set centre and shaping of every part, and the prototypes, from training views."""
    moments = _moments(network, regions, views, batch=batch, device=device)
    parts = moments[: len(moments) - _whole(network)]
    common = torch.stack([part.within() for part in parts]).mean(0)
    regions.shaping.zero_()
    every = min(regions.dimension, regions.channels)
    for number, part in enumerate(moments):
        is_part = number < len(parts)
        shared = _COMMON if is_part else 0.0  # the whole image has a covariance of its own
        within = (1 - shared) * part.within() + shared * common
        count = every if is_part else directions_of_the_whole(len(part.count), every)
        found = whitened(part, within, count=count, shrinkage=_SHRINKAGE)
        regions.centre[number] = found.centre.to(regions.centre)
        # Only directions of region vectors count; this length suits the learning rate, with any channels.
        regions.shaping[number, :count] = (found.directions * regions.channels**-0.5).to(regions.shaping)
        _start_prototypes(network, regions, number, part)


def directions_of_the_whole(classes: int, every: int) -> int:
    """How many directions the image as a whole is seen in: those that tell the classes apart.

    Further ones, which parts have, only shorten its cosines. In the few directions of few classes, though, a
    cosine is all or nothing: these keep every one.
    """
    return min(classes - 1, every) if classes > _FEW else every


def _whole(network: DProtoNet) -> int:
    """How many regions, the last ones, are the image as a whole."""
    shaping = network.encoder.shaping
    return int(isinstance(shaping, WithParts) and shaping.whole)


def _moments(
    network: DProtoNet, regions: Parts, views: ViewSource, *, batch: int, device: torch.device
) -> list[Moments]:
    """Of the mean features of every part."""
    classes = int(network.prototype_class.max()) + 1
    labels = label_tensor(views.labels)
    moments = [moments_of(labels, classes=classes, dimension=regions.channels) for _ in range(regions.count)]
    was_training = network.training
    network.eval()
    for view in load(views, chunks(every_view(views), batch), workers=0):
        pooled = regions.pooled(network.encoder.feature_map(view.inputs.to(device)).float())
        for number, part in enumerate(moments):
            part.update(pooled[:, number], torch.as_tensor(view.label))
    network.train(was_training)
    return moments


def _start_prototypes(network: DProtoNet, regions: Parts, number: int, moments: Moments) -> None:
    """The first prototype of this part in every class becomes the class's mean; further ones stay."""
    assignment = network.prototypes.assignment
    assert isinstance(assignment, PartRegion)
    means = (moments.own().float().to(regions.centre) - regions.centre[number]) @ regions.shaping[number].T
    for label in range(len(means)):
        mine = (assignment.part == number) & (network.prototype_class == label)
        if mine.any():
            network.prototypes.vectors[mine.nonzero()[0, 0]] = means[label]
