"""ROAD: the filling solves its system, whatever the hole; both directions remove what they say."""

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.controls import random_maps
from dprotonet.metrics.road import RoadProtocol, imputed, road, road_curves

EXACT = RoadProtocol(noise=0, tolerance=1e-12)
WEIGHTS = {
    (down, along): 1 / 6 if 0 in (down, along) else 1 / 12
    for down in (-1, 0, 1)
    for along in (-1, 0, 1)
    if (down, along) != (0, 0)
}


def images(count: int = 2, size: tuple[int, int] = (9, 11)) -> Tensor:
    return torch.randn(count, 3, *size, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def filled_slowly(image: Tensor, removed: Tensor) -> Tensor:
    """One equation for every removed pixel, all of them in one dense system."""
    places = [tuple(place) for place in removed.nonzero().tolist()]
    matrix = torch.zeros(len(places), len(places), dtype=torch.double)
    right = torch.zeros(len(places), len(image), dtype=torch.double)
    for number, (row, column) in enumerate(places):
        for (down, along), weight in WEIGHTS.items():
            near = row + down, column + along
            if not (0 <= near[0] < removed.shape[0] and 0 <= near[1] < removed.shape[1]):
                continue
            matrix[number, number] += weight
            if near in places:
                matrix[number, places.index(near)] -= weight
            else:
                right[number] += weight * image[:, near[0], near[1]]
    found = image.clone()
    for (row, column), values in zip(places, torch.linalg.solve(matrix, right), strict=True):
        found[:, row, column] = values
    return found


@pytest.mark.parametrize("share", [0.05, 0.5, 0.97])
@pytest.mark.parametrize("size", [(9, 11), (2, 7), (1, 6), (16, 16)])
def test_the_filling_is_that_of_a_dense_system(share: float, size: tuple[int, int]) -> None:
    given = images(2, size)
    removed = random_maps(2, size, 3) < share
    removed[:, 0, 0], removed[:, -1, -1] = True, False
    expected = torch.stack([filled_slowly(*pair) for pair in zip(given, removed, strict=True)])
    assert torch.allclose(imputed(given, removed, protocol=EXACT), expected, atol=1e-9)


def test_a_large_hole_is_filled_in_single_precision_to_far_below_the_noise() -> None:
    given = images(1, (160, 224)).float()
    removed = torch.ones(1, 160, 224, dtype=torch.bool)
    removed[0, 100:104, 30:34] = False
    usual = imputed(given, removed, protocol=RoadProtocol(noise=0))
    exact = imputed(given.double(), removed, protocol=EXACT)
    assert (usual - exact).abs().max() < 0.002


def test_what_is_left_is_left_alone_and_a_plane_is_filled_as_a_plane() -> None:
    slope = torch.arange(11.0).expand(1, 1, 9, 11)
    hole = torch.zeros(1, 9, 11, dtype=torch.bool)
    hole[0, 2:7, 3:8] = True
    assert torch.allclose(imputed(slope, hole, protocol=RoadProtocol(noise=0, tolerance=1e-7)), slope)
    noisy = imputed(slope, hole)
    assert torch.equal(noisy.where(~hole[:, None], 0), slope.where(~hole[:, None], 0))
    spread = (noisy - slope)[0, 0][hole[0]].std()
    assert 0.005 < spread < 0.02


def test_an_image_without_a_pixel_left_becomes_noise() -> None:
    gone = torch.ones(2, 9, 11, dtype=torch.bool)
    assert not imputed(images(), gone, protocol=EXACT).any()


def brightness(seen: Tensor, rows: Tensor) -> Tensor:
    return seen.mean(dim=(1, 2, 3)) + 0 * rows


def test_each_direction_removes_its_end_of_the_map_and_the_combination_is_half_the_difference() -> None:
    given = torch.full((1, 3, 20, 20), 0.2)
    given[..., :10, :] = 1.0
    maps = torch.linspace(1, 0, 400).view(1, 20, 20)  # hottest above, where it is bright
    protocol = RoadProtocol(shares=(0.25, 0.5), noise=0)
    hot, cold = (
        road_curves(brightness, given, maps, hottest=way, protocol=protocol) for way in (True, False)
    )
    # Half of the pixels gone, each side is filled from the other.
    assert hot[0, 1] == pytest.approx(0.2, abs=1e-3)
    assert cold[0, 1] == pytest.approx(1.0, abs=1e-3)
    found = road(brightness, given, maps, protocol=protocol)
    assert found.combined.item() == pytest.approx((cold.mean() - hot.mean()).item() / 2)
    assert found.hottest < found.coldest


def test_images_in_company_are_measured_as_alone() -> None:
    given, maps = images(3).float(), random_maps(3, (9, 11), 4)
    many = road(brightness, given, maps)
    for row in range(3):
        one = road(lambda seen, rows: brightness(seen, rows), given[row : row + 1], maps[row : row + 1])
        assert torch.allclose(torch.stack(one)[:, 0], torch.stack(many)[:, row], atol=1e-5)


def test_the_rows_say_which_image_is_scored() -> None:
    seen: list[int] = []

    def score(pictures: Tensor, rows: Tensor) -> Tensor:
        seen.extend(rows.tolist())
        return pictures.mean(dim=(1, 2, 3))

    road_curves(score, images(2), random_maps(2, (9, 11), 4), hottest=True, protocol=RoadProtocol(batch=4))
    assert seen == [0] * 9 + [1] * 9


@pytest.mark.parametrize(
    "wrong", [{"shares": ()}, {"shares": (0.0, 0.5)}, {"noise": -1.0}, {"tolerance": 0.0}]
)
def test_an_impossible_protocol_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"shares|noise"):
        RoadProtocol(**wrong)  # type: ignore[arg-type]


def test_maps_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="must be"):
        road(brightness, images(2), random_maps(2, (8, 11), 4))
