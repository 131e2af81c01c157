"""The push: what it finds does not depend on how it looked."""

import pytest
import torch
from torch import Tensor

from dprotonet.inference.projection import (
    NOTHING,
    MultiImageMean,
    Sources,
    SourceSearch,
    collapsed_prototypes,
)
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import CosineSimilarity, LogSimilarity

IMAGES, REGIONS, DIMENSION, CLASSES, PER_CLASS = 12, 4, 5, 3, 2


@pytest.fixture
def images() -> Tensor:
    return torch.randn(IMAGES, REGIONS, DIMENSION, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def labels() -> Tensor:
    return torch.arange(IMAGES) % CLASSES


@pytest.fixture(params=[LogSimilarity, CosineSimilarity])
def prototypes(request: pytest.FixtureRequest) -> Prototypes:
    torch.manual_seed(1)
    return Prototypes(CLASSES, PER_CLASS, DIMENSION, similarity=request.param())


def searched(
    prototypes: Prototypes, images: Tensor, labels: Tensor, order: list[Tensor], count: int = 1
) -> Sources:
    search = SourceSearch(prototypes, count)
    for rows in order:
        search.update(images[rows], labels[rows], rows)
    return search.sources()


def pushed(prototypes: Prototypes, images: Tensor, labels: Tensor) -> Tensor:
    sources = searched(prototypes, images, labels, [torch.arange(IMAGES)])
    mean = MultiImageMean(prototypes, sources)
    mean.update(images, torch.arange(IMAGES))
    return mean.vectors()


def assert_equal(found: Sources, expected: Sources) -> None:
    assert found.index.tolist() == expected.index.tolist()
    assert found.region.tolist() == expected.region.tolist()
    torch.testing.assert_close(found.distances, expected.distances)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [1, 3, 12])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_order_and_split_of_the_data_do_not_matter(
    prototypes: Prototypes, images: Tensor, labels: Tensor, *, size: int, seed: int, count: int
) -> None:
    images[9] = images[0]  # two equal images of one class: a tie for each of their prototypes
    images[10] = images[1]
    expected = searched(prototypes, images, labels, [torch.arange(IMAGES)], count)
    shuffled = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(seed))
    assert_equal(searched(prototypes, images, labels, list(shuffled.split(size)), count), expected)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
@pytest.mark.parametrize("count", [1, 3])
def test_searches_of_several_processes_merge_in_any_order(
    prototypes: Prototypes, images: Tensor, labels: Tensor, order: list[int], count: int
) -> None:
    images[9] = images[0]
    parts = torch.arange(IMAGES).split(4)
    found = [searched(prototypes, images, labels, [rows], count) for rows in parts]
    whole = SourceSearch(prototypes, count)
    for part in order:
        whole.merge(found[part])
    assert_equal(whole.sources(), searched(prototypes, images, labels, [torch.arange(IMAGES)], count))


def test_several_sources_are_the_nearest_own_class_images_in_order(
    prototypes: Prototypes, images: Tensor, labels: Tensor
) -> None:
    found = searched(prototypes, images, labels, list(torch.arange(IMAGES).split(5)), 6)
    space, own = prototypes.similarity.space, IMAGES // CLASSES
    for number, owner in enumerate(prototypes.prototype_class.tolist()):
        gaps = (
            (space(images) - space(prototypes.vectors.detach()[number])).square().sum(-1)
        )  # (images, regions)
        mine = [index for index in range(IMAGES) if labels[index] == owner]
        nearest = sorted(mine, key=lambda index: float(gaps[index].min()))
        assert found.index[number].tolist() == nearest + [NOTHING] * (6 - own)
        assert found.region[number, :own].tolist() == [int(gaps[index].argmin()) for index in nearest]


def test_the_mean_is_over_all_sources(prototypes: Prototypes, images: Tensor, labels: Tensor) -> None:
    sources = searched(prototypes, images, labels, [torch.arange(IMAGES)], 3)
    mean = MultiImageMean(prototypes, sources)
    mean.update(images, torch.arange(IMAGES))
    expected = images[sources.index, sources.region].mean(dim=1)
    torch.testing.assert_close(mean.vectors(), expected)


@pytest.mark.parametrize("order", [[3, 5], [5, 3]])
def test_of_equally_near_images_the_smaller_index_is_the_source(order: list[int]) -> None:
    prototypes = Prototypes(1, 1, DIMENSION, similarity=LogSimilarity())
    twin = torch.ones(1, 1, DIMENSION)
    together, apart = SourceSearch(prototypes), SourceSearch(prototypes)
    together.update(twin.repeat(2, 1, 1), torch.tensor([0, 0]), torch.tensor(order))
    for index in order:
        apart.update(twin, torch.tensor([0]), torch.tensor([index]))
    assert together.sources().index.tolist() == apart.sources().index.tolist() == [[3]]


def test_sources_are_of_the_own_class(prototypes: Prototypes, images: Tensor, labels: Tensor) -> None:
    images[0] = prototypes.vectors[-1].detach()  # a perfect match of another class
    sources = searched(prototypes, images, labels, [torch.arange(IMAGES)])
    assert torch.equal(labels[sources.index[:, 0]], prototypes.prototype_class)


def test_views_are_averaged_however_they_were_spread(prototypes: Prototypes, images: Tensor) -> None:
    labels = torch.zeros(IMAGES, dtype=torch.long)
    sources = searched(prototypes, images[:1], labels[:1], [torch.tensor([0])])
    results = []
    for order in (torch.arange(IMAGES).split(5), torch.arange(IMAGES).flip(0).split(1)):
        mean = MultiImageMean(prototypes, sources)
        for rows in order:
            mean.update(images[rows], labels[rows])
        results.append(mean.vectors())
    torch.testing.assert_close(*results)
    assert mean.count[:PER_CLASS].tolist() == [IMAGES] * PER_CLASS


def test_views_of_other_images_are_not_averaged(
    prototypes: Prototypes, images: Tensor, labels: Tensor
) -> None:
    sources = searched(prototypes, images, labels, [torch.arange(IMAGES)])
    mean = MultiImageMean(prototypes, sources)
    unused = torch.tensor([n for n in range(IMAGES) if n not in sources.index.flatten().tolist()])
    mean.update(images[unused], unused)
    assert mean.count.tolist() == [0] * CLASSES * PER_CLASS
    assert torch.equal(mean.vectors(), prototypes.vectors)


def test_a_pushed_prototype_is_a_region_vector(
    prototypes: Prototypes, images: Tensor, labels: Tensor
) -> None:
    sources = searched(prototypes, images, labels, [torch.arange(IMAGES)])
    assert torch.equal(pushed(prototypes, images, labels), images[sources.index, sources.region].squeeze(1))


def test_pushing_twice_is_pushing_once(prototypes: Prototypes, images: Tensor, labels: Tensor) -> None:
    once = pushed(prototypes, images, labels)
    assert not torch.equal(once, prototypes.vectors)
    prototypes.vectors.data.copy_(once)
    assert torch.equal(pushed(prototypes, images, labels), once)


def test_a_class_without_images_keeps_its_prototypes(
    prototypes: Prototypes, images: Tensor, labels: Tensor
) -> None:
    absent = prototypes.prototype_class == 1
    labels[labels == 1] = 2
    sources = searched(prototypes, images, labels, list(torch.arange(IMAGES).split(5)))
    vectors = pushed(prototypes, images, labels)
    assert (sources.index[absent] == NOTHING).all()
    assert (sources.region[absent] == NOTHING).all()
    assert (sources.index[~absent] != NOTHING).all()
    assert torch.equal(vectors[absent], prototypes.vectors[absent])
    assert (vectors[~absent] != prototypes.vectors[~absent]).any(dim=1).all()


def test_permuting_prototypes_permutes_the_push(
    prototypes: Prototypes, images: Tensor, labels: Tensor
) -> None:
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    sources = searched(prototypes, images, labels, [torch.arange(IMAGES)])
    vectors = pushed(prototypes, images, labels)
    prototypes.vectors.data = prototypes.vectors.data[order]
    prototypes.prototype_class = prototypes.prototype_class[order]
    permuted = searched(prototypes, images, labels, [torch.arange(IMAGES)])
    assert_equal(permuted, Sources(sources.distances[order], sources.index[order], sources.region[order]))
    assert torch.equal(pushed(prototypes, images, labels), vectors[order])


def test_the_push_leaves_no_graph(prototypes: Prototypes, images: Tensor, labels: Tensor) -> None:
    assert not pushed(prototypes, images.requires_grad_(), labels).requires_grad


# ── collapse ─────────────────────────────────────────────────────────────────────────────────────────

VECTORS = torch.tensor([[3.0, 4.0], [0.0, 1.0], [3.0, 4.0], [-3.0, 4.0]])


def test_exact_copies_of_an_earlier_prototype_of_the_class_are_reported() -> None:
    assert collapsed_prototypes(VECTORS, torch.zeros(4)).tolist() == [False, False, True, False]


def test_equal_prototypes_of_different_classes_are_not_reported() -> None:
    assert not collapsed_prototypes(VECTORS, torch.tensor([0, 0, 1, 1])).any()


@pytest.mark.parametrize(("shift", "collapsed"), [(4e-4, True), (6e-4, False)])
def test_near_means_a_ten_thousandth_of_the_length(shift: float, collapsed: bool) -> None:
    near = VECTORS.double() + torch.tensor([[0, 0], [0, 0], [shift, 0], [0, 0]])  # of length 5
    assert collapsed_prototypes(near, torch.zeros(4)).tolist() == [False, False, collapsed, False]


def test_scale_does_not_change_what_collapsed_means() -> None:
    for scale in (1e-6, 1e6):
        assert collapsed_prototypes(VECTORS * scale, torch.zeros(4)).tolist() == [False, False, True, False]


def test_all_copies_but_the_first_are_reported() -> None:
    assert collapsed_prototypes(torch.ones(4, 3), torch.zeros(4)).tolist() == [False, True, True, True]
