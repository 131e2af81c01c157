"""Similarity of parts: the cosine, times how far the part is there."""

import pytest
import torch
from torch.nn.functional import cosine_similarity

from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.prune import pruned
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.inference.similarity import PresentCosine

PARTS, CLASSES, DIMENSION = 3, 2, 5


@pytest.fixture
def regions() -> torch.Tensor:
    """Vectors of length 0 to 1."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(4, PARTS, DIMENSION, generator=generator), dim=-1)
    return directions * torch.rand(4, PARTS, 1, generator=generator)


@pytest.fixture
def prototypes() -> Prototypes:
    torch.manual_seed(1)
    part = torch.arange(CLASSES * PARTS) % PARTS
    return Prototypes(CLASSES, PARTS, DIMENSION, similarity=PresentCosine(), assignment=PartRegion(part))


def test_the_score_is_length_times_cosine_with_the_own_part(
    regions: torch.Tensor, prototypes: Prototypes
) -> None:
    scored = prototypes(regions)
    for number in range(CLASSES * PARTS):
        mine = regions[:, number % PARTS]
        expected = mine.norm(dim=1) * cosine_similarity(mine, prototypes.vectors[number].unsqueeze(0))
        torch.testing.assert_close(scored.scores[:, number], expected, rtol=1e-4, atol=1e-5)
        assert (scored.region[:, number] == number % PARTS).all()


def test_the_length_of_a_prototype_says_nothing(regions: torch.Tensor, prototypes: Prototypes) -> None:
    before = prototypes(regions).scores
    prototypes.vectors.data *= 7
    torch.testing.assert_close(prototypes(regions).scores, before)


def test_gradients_are_finite_where_a_part_is_wholly_there_or_not_at_all(prototypes: Prototypes) -> None:
    regions = torch.zeros(1, PARTS, DIMENSION)
    regions[0, 0, 0] = 1.0
    regions.requires_grad_()
    prototypes(regions).scores.sum().backward()
    assert regions.grad is not None
    assert torch.isfinite(regions.grad).all()


def test_some_prototypes_wanted_are_rows_of_all(regions: torch.Tensor, prototypes: Prototypes) -> None:
    wanted = torch.tensor([4, 1])
    some, every = prototypes.nearest(regions, wanted), prototypes.nearest(regions)
    torch.testing.assert_close(some.distances, every.distances[:, wanted])
    assert torch.equal(some.region, every.region[:, wanted])


def test_pruning_keeps_the_parts_of_what_is_left(regions: torch.Tensor, prototypes: Prototypes) -> None:
    kept = torch.tensor([True, False, True, False, True, True])
    left = pruned(prototypes, Head(prototypes.prototype_class), kept).prototypes
    torch.testing.assert_close(left(regions).scores, prototypes(regions).scores[:, kept])
