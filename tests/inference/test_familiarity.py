"""The threshold from which on an image is strange: the quantile's arithmetic, and its promise kept."""

import math

import pytest
import torch

from dprotonet.errors import UserError
from dprotonet.inference.familiarity import (
    class_strangeness,
    conformal_threshold,
    rank_of,
    strangeness,
)


def test_strangeness_is_the_distance_of_the_nearest_prototype() -> None:
    distances = torch.rand(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for row, value in zip(distances, strangeness(distances), strict=True):
        assert float(value) == pytest.approx(min(math.sqrt(float(entry)) for entry in row), abs=1e-12)


def test_class_strangeness_is_the_mean_of_the_nearest_class_that_has_prototypes() -> None:
    distances = torch.tensor([[1.0, 9.0, 4.0, 4.0, 2.0], [0.0, 16.0, 1.0, 3.0, 8.0]])
    owner = torch.tensor([0, 0, 1, 1, 3])  # pruning left class 2 without any
    found = class_strangeness(distances, owner)
    assert found.tolist() == pytest.approx([math.sqrt(2), math.sqrt(2)])


@pytest.mark.parametrize(("images", "share"), [(19, 0.05), (20, 0.05), (99, 0.05), (180, 0.1), (7, 0.5)])
def test_the_rank_is_the_smallest_that_keeps_the_promise(images: int, share: float) -> None:
    """A new image is equally likely to take each of the images + 1 places."""
    rank = rank_of(images, share)
    above = (images + 1 - rank) / (images + 1)
    assert above <= share + 1e-12
    assert (images + 1 - (rank - 1)) / (images + 1) > share


def test_too_few_images_give_the_largest() -> None:
    values = torch.tensor([3.0, 1.0, 2.0])
    assert conformal_threshold(values, 0.05) == 3.0
    assert conformal_threshold(values, 0.5) == 2.0


def test_about_the_share_of_new_images_is_above() -> None:
    draws = torch.rand(2000, 60, generator=torch.Generator().manual_seed(1)) ** 3
    above = [float(row[-1]) > conformal_threshold(row[:-1], 0.05) for row in draws]
    assert sum(above) / len(above) == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        conformal_threshold(torch.ones(3), share)


@pytest.mark.parametrize("values", [torch.empty(0), torch.tensor([1.0, math.nan])])
def test_values_that_give_no_threshold(values: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="finite values"):
        conformal_threshold(values)
