"""The maps that explain nothing are what they say."""

import pytest
import torch

from dprotonet.metrics.controls import all_but_one, centre_gaussian, random_maps

SIZE = (6, 9)


def test_random_maps_repeat_with_the_seed_and_differ_between_images() -> None:
    maps = random_maps(3, SIZE, seed=4)
    assert maps.shape == (3, *SIZE)
    assert maps.equal(random_maps(3, SIZE, seed=4))
    assert not maps.equal(random_maps(3, SIZE, seed=5))
    assert not maps[0].equal(maps[1])
    assert maps.min() >= 0
    assert maps.max() <= 1


def test_random_maps_leave_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    random_maps(2, SIZE, seed=1)
    assert torch.rand(1).equal(expected)


@pytest.mark.parametrize("size", [(7, 9), (6, 9), (224, 224)])
def test_the_gaussian_is_hottest_in_the_middle_and_symmetric(size: tuple[int, int]) -> None:
    maps = centre_gaussian(2, size)
    middle = maps[:, (size[0] - 1) // 2, (size[1] - 1) // 2]
    assert maps.shape == (2, *size)
    assert middle.tolist() == [1, 1]
    assert maps[:, 0, 0].tolist() == [0, 0]
    assert torch.allclose(maps, maps.flip(1), atol=1e-6)
    assert torch.allclose(maps, maps.flip(2), atol=1e-6)
    assert (maps[0, size[0] // 2, size[1] // 2 :].diff() < 0).all()


def test_the_spread_is_a_share_of_each_side() -> None:
    narrow, wide = centre_gaussian(1, (21, 41), spread=0.1), centre_gaussian(1, (21, 41), spread=0.5)
    assert narrow.sum() < wide.sum() / 2
    width, height = (narrow[0, 10] > 0.5).sum().item(), (narrow[0, :, 20] > 0.5).sum().item()
    assert width / 41 == pytest.approx(height / 21, abs=0.05)


def test_all_but_one() -> None:
    maps = all_but_one(2, SIZE)
    assert maps.shape == (2, *SIZE)
    assert maps.sum(dim=(1, 2)).tolist() == [53, 53]
    assert maps[:, 0, 0].tolist() == [0, 0]


def test_maps_of_different_images_do_not_share_memory() -> None:
    for maps in (centre_gaussian(2, SIZE), all_but_one(2, SIZE)):
        maps[0] += 1
        assert not maps[0].equal(maps[1])
