"""Parts: shares of a place sum to one with the background, and a region is the mean of its places."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from dprotonet.encoder.part_maps import PartMaps, WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.encoder.shaping import Shaping

CHANNELS, DIMENSION, COUNT, SIZE = 5, 4, 3, (4, 6)


def made(sharpness: float = 4.0) -> Parts:
    torch.manual_seed(4)
    return Parts(CHANNELS, DIMENSION, COUNT, SIZE, sharpness=sharpness).double()


@pytest.fixture
def features() -> Tensor:
    return torch.randn(2, CHANNELS, *SIZE, generator=torch.Generator().manual_seed(0)).double()


def test_shares_are_the_literal_softmax(features: Tensor) -> None:
    torch.manual_seed(1)
    maps = PartMaps(CHANNELS, COUNT, backgrounds=2, contrast=7).double()
    torch.nn.init.normal_(maps.offset)
    found = maps(features)
    for image in range(2):
        for row in range(SIZE[0]):
            for column in range(SIZE[1]):
                place = features[image, :, row, column]
                cosines = [
                    float(place @ direction / place.norm() / direction.norm())
                    for direction in maps.directions.detach()
                ]
                heights = 7 * (torch.tensor(cosines).double() + maps.offset)
                expected = heights.exp() / heights.exp().sum()
                torch.testing.assert_close(found[image, :, row, column], expected[:COUNT])


def test_two_parts_cannot_have_the_same_place(features: Tensor) -> None:
    found = PartMaps(CHANNELS, COUNT).double()(features)
    assert float(found.sum(dim=1).max()) < 1
    most = found > 0.5
    assert int(most.sum(dim=1).max()) <= 1


def test_a_region_is_the_direction_of_its_places_as_long_as_it_is_present(features: Tensor) -> None:
    shares = torch.rand(2, COUNT, *SIZE, generator=torch.Generator().manual_seed(2)).double()
    parts = made(sharpness=4)
    torch.nn.init.normal_(parts.centre)
    found = parts(torch.cat([features, shares], dim=1))
    for image in range(2):
        for part in range(COUNT):
            total, weights = torch.zeros(CHANNELS).double(), 0.0
            for row in range(SIZE[0]):
                for column in range(SIZE[1]):
                    share = float(shares[image, part, row, column]) ** 4
                    total += share * features[image, :, row, column]
                    weights += share
            shaped = parts.shaping[part] @ (total / weights - parts.centre[part])
            length = float(shares[image, part].max())
            torch.testing.assert_close(found[image, part], length * shaped / shaped.norm())


def test_what_places_add_to_a_region_is_the_literal_sum(features: Tensor) -> None:
    """Σ_u w_u (F_u - c) · Aᵀt · presence / |A (mean - c)|, place by place; together exactly z · t."""
    shares = torch.rand(2, COUNT, *SIZE, generator=torch.Generator().manual_seed(2)).double()
    towards = torch.randn(2, COUNT, DIMENSION, generator=torch.Generator().manual_seed(3)).double()
    parts, maps = made(sharpness=3), torch.cat([features, shares], dim=1)
    torch.nn.init.normal_(parts.centre)
    found, regions = parts.added_by_places(maps, towards), parts(maps)
    places = [(row, column) for row in range(SIZE[0]) for column in range(SIZE[1])]
    for image in range(2):
        for part in range(COUNT):
            weights = {at: float(shares[image, part, *at]) ** 3 for at in places}
            total = sum(weights.values())
            mean = torch.stack([weights[at] / total * features[image, :, *at] for at in places]).sum(dim=0)
            length = float((parts.shaping[part] @ (mean - parts.centre[part])).norm())
            added = 0.0
            for at in places:
                shaped = parts.shaping[part] @ (features[image, :, *at] - parts.centre[part])
                one = weights[at] / total * float(shaped @ towards[image, part])
                one *= float(shares[image, part].max()) / length
                assert float(found[image, part, *at]) == pytest.approx(one, abs=1e-12)
                added += one
            assert added == pytest.approx(float(regions[image, part] @ towards[image, part]), abs=1e-12)


def test_an_absent_part_gives_no_numbers_that_are_none(features: Tensor) -> None:
    for share in (0.0, 1e-30):
        shares = torch.full((2, COUNT, *SIZE), share)
        found = made().float()(torch.cat([features.float(), shares], 1))
        assert torch.isfinite(found).all()
        assert float(found.norm(dim=-1).max()) <= 2 * share
        added = (
            made()
            .float()
            .added_by_places(torch.cat([features.float(), shares], 1), torch.ones(2, COUNT, DIMENSION))
        )
        assert float(added.abs().max()) <= 1e-3


def test_only_the_finest_level_says_where(features: Tensor) -> None:
    maps = PartMaps(2, COUNT).double()
    other = torch.cat([features[:, :2], torch.randn_like(features[:, 2:])], dim=1)
    torch.testing.assert_close(maps(features), maps(other))


def test_a_region_follows_the_image(features: Tensor) -> None:
    """Shift the image by a cell: the parts move with it, their vectors stay."""
    torch.manual_seed(3)
    shaping = WithParts(PartMaps(CHANNELS, COUNT)).double()
    regions = made()
    moved = features.roll((1, 2), dims=(2, 3))
    torch.testing.assert_close(regions(shaping(moved)), regions(shaping(features)))
    torch.testing.assert_close(
        regions.maps(shaping(moved)), regions.maps(shaping(features)).roll((1, 2), dims=(2, 3))
    )


def test_gradients_reach_the_maps_through_the_regions(features: Tensor) -> None:
    shaping = WithParts(PartMaps(CHANNELS, COUNT)).double()
    made()(shaping(features)).square().sum().backward()
    assert shaping.part_maps.directions.grad is not None
    assert float(shaping.part_maps.directions.grad.abs().sum()) > 0


def test_lengths_of_directions_say_nothing(features: Tensor) -> None:
    maps = PartMaps(CHANNELS, COUNT).double()
    before = maps(features)
    maps.directions.data = normalize(maps.directions.data, dim=1) * 3
    torch.testing.assert_close(maps(features), before)


def test_dropout_takes_whole_channels_while_training_and_none_after() -> None:
    shaping = Shaping(CHANNELS, DIMENSION, dropout=0.5)
    maps = torch.ones(1, CHANNELS, *SIZE)
    shaping.eval()
    assert torch.equal(shaping(maps), shaping(maps))
    torch.manual_seed(0)
    found = torch.stack([shaping.train()(maps)[0] for _ in range(8)])
    assert (found == found[..., :1, :1]).all()  # alike at all places: channels go, not places
    assert len(found[:, 0, 0, 0].unique()) > 1


def test_dropout_of_parts_takes_channels_of_all_parts_while_training(features: Tensor) -> None:
    parts = made()
    parts.shaping.data = torch.eye(DIMENSION, CHANNELS).double().expand(COUNT, -1, -1).clone()
    maps = torch.cat([features, torch.rand(2, COUNT, *SIZE).double()], dim=1)
    parts.dropout = 0.5
    assert torch.equal(parts.eval()(maps), parts(maps))
    gone = parts.train()(maps) == 0
    assert gone.any()
    assert torch.equal(gone, gone[:, :1].expand_as(gone))


def test_the_whole_image_is_one_more_region_the_mean_of_all_places(features: Tensor) -> None:
    shaping = WithParts(PartMaps(CHANNELS, COUNT), whole=True).double()
    parts = Parts(CHANNELS, DIMENSION, COUNT + 1, SIZE).double()
    mapped = shaping(features)
    torch.testing.assert_close(parts.pooled(mapped)[:, COUNT], features.mean(dim=(2, 3)))
    torch.testing.assert_close(parts(mapped)[:, COUNT].norm(dim=-1), torch.ones(2).double())
    boxes = parts.boxes(mapped)
    assert boxes[:, COUNT].tolist() == [[0, 0, 1, 1]] * 2
    assert float(boxes[:, :COUNT, 2:].max()) < 1


def test_without_the_whole_nothing_changes(features: Tensor) -> None:
    maps = PartMaps(CHANNELS, COUNT).double()
    with_it, without = WithParts(maps, whole=True)(features), WithParts(maps)(features)
    assert torch.equal(with_it[:, :-1], without)
