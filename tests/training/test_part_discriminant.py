"""Parts begin as discriminants: what tells classes apart by one part is found in that part alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from dprotonet.data.transforms import View
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import PresentCosine
from dprotonet.network import DProtoNet
from dprotonet.training.part_discriminant import directions_of_the_whole, start_parts_as_discriminants

SIDE, PARTS, EXTRA, IMAGES, CLASSES = 4, 2, 6, 60, 3
CHANNELS = PARTS + EXTRA


class Planted:
    """The left half is part 0, the right part 1; the class shows in part 1 only, in a quiet channel beside a
    loud one that says nothing."""

    labels = tuple(index % CLASSES for index in range(IMAGES))
    augmentations = 1

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, key: tuple[int, int]) -> View:
        generator = torch.Generator().manual_seed(100 * key[0] + key[1])
        label = self.labels[key[0]]
        maps = torch.zeros(CHANNELS, SIDE, SIDE)
        maps[0, :, :2], maps[1, :, 2:] = 3.0, 3.0
        maps[PARTS:] = 0.05 * torch.randn(EXTRA, 1, 1, generator=generator)
        maps[PARTS] = torch.randn((), generator=generator)  # loud
        maps[PARTS + 1 + label, :, 2:] += 0.3  # quiet
        return View(maps, label, key[0])


def test_the_whole_is_seen_in_the_directions_that_tell_classes_apart() -> None:
    assert directions_of_the_whole(37, 256) == 36
    assert directions_of_the_whole(300, 256) == 256
    assert directions_of_the_whole(2, 256) == 256  # in a single direction a cosine is all or nothing


def network(dimension: int = CHANNELS, per_class: int = PARTS) -> DProtoNet:
    torch.manual_seed(0)
    part_maps = PartMaps(PARTS, PARTS, backgrounds=1)
    part_maps.directions.data = torch.cat([torch.eye(PARTS), -torch.ones(1, PARTS)])
    regions = Parts(CHANNELS, dimension, PARTS, (SIDE, SIDE))
    assignment = PartRegion(torch.arange(CLASSES * per_class) % per_class % PARTS)
    prototypes = Prototypes(CLASSES, per_class, dimension, similarity=PresentCosine(), assignment=assignment)
    head = Head(prototypes.prototype_class, own=1.0, other=0.0)
    return DProtoNet(Encoder(nn.Identity(), WithParts(part_maps), regions), prototypes, head)


def started(**options: int) -> DProtoNet:
    found = network(**options)
    assert isinstance(found.encoder.regions, Parts)
    start_parts_as_discriminants(found, found.encoder.regions, Planted(), device=torch.device("cpu"))
    return found


def scores(found: DProtoNet) -> tuple[Tensor, Tensor]:
    views = [Planted()[index, 5] for index in range(IMAGES)]  # views that the start has not seen
    with torch.no_grad():
        evidence = found.evidence(torch.stack([view.inputs for view in views]))
    return evidence.scores.unflatten(1, (CLASSES, -1)), torch.tensor([view.label for view in views])


@pytest.mark.parametrize("dimension", [CHANNELS, 3, CHANNELS + 4])
def test_the_start_classifies_by_the_part_that_tells(dimension: int) -> None:
    found, labels = scores(started(dimension=dimension))
    assert float((found[:, :, 1].argmax(1) == labels).float().mean()) > 0.95
    assert float((found[:, :, 0].argmax(1) == labels).float().mean()) < 0.7
    random, _ = scores(network(dimension=dimension))
    assert float((random.sum(2).argmax(1) == labels).float().mean()) < 0.8


def test_prototypes_are_the_class_means_as_the_part_shapes_them() -> None:
    found = started()
    regions = found.encoder.regions
    assert isinstance(regions, Parts)
    views = [Planted()[index, variant] for index in range(IMAGES) for variant in range(2)]
    labels = torch.tensor([view.label for view in views])
    with torch.no_grad():
        pooled = regions.pooled(found.encoder.feature_map(torch.stack([view.inputs for view in views])))
        member = one_hot(labels).float()
        means = torch.einsum("nc,nkd->ckd", member, pooled) / member.sum(0)[:, None, None]
        wanted = torch.einsum("ckd,ked->cke", means - regions.centre, regions.shaping).flatten(0, 1)
        torch.testing.assert_close(
            normalize(found.prototypes.vectors, dim=1), normalize(wanted, dim=1), atol=1e-4, rtol=0
        )


def test_the_spread_within_classes_is_about_one_in_all_directions() -> None:
    found = started()
    regions = found.encoder.regions
    assert isinstance(regions, Parts)
    views = [Planted()[index, 0] for index in range(IMAGES)]
    labels = torch.tensor([view.label for view in views])
    with torch.no_grad():
        pooled = regions.pooled(found.encoder.feature_map(torch.stack([view.inputs for view in views])))[:, 1]
        shaped = (pooled - regions.centre[1]) @ regions.shaping[1].T * CHANNELS**0.5
    apart = torch.cat([shaped[labels == label] - shaped[labels == label].mean(0) for label in range(CLASSES)])
    assert float(apart.square().sum(1).mean()) < 2 * CHANNELS  # the loud channel alone would be beyond
    assert float(torch.linalg.svdvals(torch.cov(apart.T))[0]) < 3


def test_further_prototypes_of_a_part_keep_their_start() -> None:
    before, after = network(per_class=3), started(per_class=3)
    changed = (before.prototypes.vectors != after.prototypes.vectors).any(dim=1)
    assert changed.tolist() == [True, True, False] * CLASSES
