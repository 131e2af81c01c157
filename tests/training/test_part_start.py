"""Part maps start where the object is: planted objects away from the border, in two halves."""

import torch
from torch import Tensor, nn

from dprotonet.data.transforms import View
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import CosineSimilarity
from dprotonet.network import DProtoNet
from dprotonet.training.part_start import border_of, spherical_clusters, start_parts
from dprotonet.training.start import starting_vectors

CHANNELS, SIDE, IMAGES = 8, 10, 12
HEAD, TAIL = 0, 1  # channels of the object's halves; 2 to 7 are background


class Planted:
    """Feature maps with an object of two halves in the middle, before a background of six kinds."""

    labels = [0, 1] * (IMAGES // 2)
    augmentations = 0

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, key: tuple[int, int]) -> View:
        generator = torch.Generator().manual_seed(key[0])
        kind = 2 + torch.randint(CHANNELS - 2, (SIDE, SIDE), generator=generator)
        kind[3:7, 3:5], kind[3:7, 5:7] = HEAD, TAIL
        noise = 0.05 * torch.randn(CHANNELS, SIDE, SIDE, generator=generator)
        inputs = torch.nn.functional.one_hot(kind, CHANNELS).movedim(-1, 0).float() + noise
        return View(inputs, self.labels[key[0]], key[0])


def network(parts: int = 2) -> DProtoNet:
    torch.manual_seed(0)
    shaping = WithParts(PartMaps(CHANNELS, parts))
    encoder = Encoder(nn.Identity(), shaping, Parts(CHANNELS, 4, parts, (SIDE, SIDE)))
    part = torch.arange(2 * parts) % parts
    prototypes = Prototypes(2, parts, 4, similarity=CosineSimilarity(), assignment=PartRegion(part))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class))


def started(seed: int = 0) -> DProtoNet:
    found = network()
    shaping = found.encoder.shaping
    assert isinstance(shaping, WithParts)
    start_parts(found, shaping.part_maps, Planted(), seed=seed, device=torch.device("cpu"))
    return found


def shares(found: DProtoNet) -> Tensor:
    images = torch.stack([Planted()[index, 0].inputs for index in range(IMAGES)])
    regions = found.encoder.regions
    assert isinstance(regions, Parts)
    with torch.no_grad():
        return regions.maps(found.encoder.feature_map(images))


def test_parts_are_the_halves_of_the_object() -> None:
    found = shares(started())
    head, tail = found[:, :, 3:7, 3:5].mean(dim=(0, 2, 3)), found[:, :, 3:7, 5:7].mean(dim=(0, 2, 3))
    assert int(head.argmax()) != int(tail.argmax())
    assert float(head.max()) > 0.8
    assert float(tail.max()) > 0.8
    outside = found[:, :, border_of(SIDE, SIDE)].sum(dim=1)
    assert float(outside.mean()) < 0.2


def test_the_same_seed_is_the_same_start() -> None:
    assert torch.equal(shares(started(1)), shares(started(1)))


def test_prototypes_start_as_regions_of_their_own_part() -> None:
    found = started()
    vectors = starting_vectors(found, Planted(), seed=0, device=torch.device("cpu"))
    images = torch.stack([Planted()[index, 0].inputs for index in range(IMAGES)])
    with torch.no_grad():
        regions = found.encoder(images)
    for number, part in enumerate(found.prototypes.assignment.part.tolist()):  # type: ignore[union-attr]
        assert float((regions[:, part] - vectors[number]).norm(dim=1).min()) < 1e-5


def test_clusters_of_planted_directions_are_found() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.normalize(torch.randn(5, 16, generator=generator), dim=1)
    vectors = truth.repeat(100, 1) + 0.05 * torch.randn(500, 16, generator=generator)
    found = spherical_clusters(torch.nn.functional.normalize(vectors, dim=1), 5, generator)
    assert float((truth @ found.T).amax(dim=1).min()) > 0.98


def test_the_border_is_a_seventh_of_each_side() -> None:
    assert int((~border_of(14, 14)).sum()) == 100
    assert int((~border_of(7, 7)).sum()) == 25
