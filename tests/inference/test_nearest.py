"""The search for the nearest region: little memory, any block size, never in half precision."""

import pytest
import torch
from torch import Tensor

from dprotonet.inference import nearest
from dprotonet.inference.nearest import chosen_regions, nearest_regions


def inputs(images: int, regions: int, prototypes: int, dimension: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (images, regions, dimension), (prototypes, dimension)
    first, second = (torch.randn(shape, generator=generator).double().requires_grad_() for shape in shapes)
    return first, second


def everything(regions: Tensor, prototypes: Tensor) -> list[Tensor]:
    distances, region = nearest_regions(regions, prototypes)
    weights = torch.linspace(-1, 2, distances.numel(), dtype=distances.dtype).reshape(distances.shape)
    return [distances, region, *torch.autograd.grad(distances, (regions, prototypes), weights)]


def test_the_distances_to_all_regions_are_not_kept_for_backward() -> None:
    regions, prototypes = inputs(4, 60, 50, 3)
    kept: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        nearest_regions(regions, prototypes).distances.sum().backward()
    assert kept  # something was watched
    assert sum(kept) < 4 * 60 * 50 / 8
    assert regions.grad is not None


@pytest.mark.parametrize("elements", [1, 7 * 5 * 2, 10**9])
def test_blocks_change_nothing(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    regions, prototypes = inputs(7, 5, 6, 4)
    expected = everything(regions, prototypes)
    monkeypatch.setattr(nearest, "_BLOCK_ELEMENTS", elements)
    for found, wanted in zip(everything(regions, prototypes), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_gradients_pass_the_numerical_check() -> None:
    regions, prototypes = inputs(3, 4, 5, 2)
    assert torch.autograd.gradcheck(lambda z, p: nearest_regions(z, p).distances, (regions, prototypes))


def test_the_layout_of_the_regions_does_not_matter() -> None:
    regions, prototypes = inputs(3, 5, 6, 4)
    turned = regions.detach().permute(2, 1, 0).contiguous().permute(2, 1, 0).requires_grad_()
    assert not turned.is_contiguous()
    for found, wanted in zip(everything(turned, prototypes), everything(regions, prototypes), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_region_chosen_by_many_prototypes_gathers_their_gradients() -> None:
    regions = torch.tensor([[[0.0, 0.0], [100.0, 100.0]]], requires_grad=True)
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-4.0, 0.0]])
    nearest_regions(regions, prototypes).distances.sum().backward()
    assert regions.grad is not None
    assert regions.grad.tolist() == [[[6.0, -4.0], [0.0, 0.0]]]


def test_of_equally_near_regions_the_first_is_taken() -> None:
    regions = torch.tensor([[[5.0], [1.0], [3.0], [1.0], [5.0]]])
    assert nearest_regions(regions, torch.tensor([[1.0], [2.0], [9.0]])).region.tolist() == [[1, 1, 0]]


def test_a_region_on_its_prototype_is_at_distance_zero() -> None:
    regions, _ = inputs(2, 50, 1, 64)
    regions = (regions.detach() + 100).float()
    found = nearest_regions(regions, regions[1])
    assert found.distances[1].tolist() == [0.0] * 50
    assert found.region[1].tolist() == list(range(50))


def test_a_common_offset_of_the_regions_does_not_blur_the_search() -> None:
    """Region vectors of one image share most of their length; the search must see what differs."""
    regions, prototypes = inputs(2, 200, 30, 64)
    far = (regions.detach() * 0.01 + 50).float(), (prototypes.detach() * 0.01 + 50).float()
    gaps = (far[0].double().unsqueeze(2) - far[1].double()).square().sum(-1)
    torch.testing.assert_close(nearest_regions(*far).distances.double(), gaps.amin(1), rtol=1e-3, atol=0)


def test_half_precision_regions_give_single_precision_distances() -> None:
    regions, prototypes = (tensor.detach().float() for tensor in inputs(2, 5, 6, 32))
    half = regions.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow, wide = nearest_regions(half, prototypes), nearest_regions(regions, prototypes)
    assert narrow.distances.dtype == wide.distances.dtype == torch.float32
    assert torch.equal(narrow.distances, nearest_regions(half.float(), prototypes).distances)
    assert torch.equal(wide.distances, nearest_regions(regions, prototypes).distances)


def test_gradients_come_back_in_the_precision_of_the_regions() -> None:
    regions, prototypes = inputs(2, 5, 6, 4)
    half = regions.detach().bfloat16().requires_grad_()
    nearest_regions(half, prototypes.float()).distances.sum().backward()
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16


def test_different_numbers_of_channels_are_named() -> None:
    with pytest.raises(ValueError, match=r"regions have 4 channels, prototypes 3"):
        nearest_regions(torch.zeros(1, 2, 4), torch.zeros(5, 3))


def test_chosen_regions_are_the_named_ones() -> None:
    regions, _ = inputs(3, 5, 1, 4)
    region = torch.tensor([[0, 4], [2, 2], [3, 1]])
    chosen = chosen_regions(regions, region)
    assert all(torch.equal(chosen[b, j], regions[b, region[b, j]]) for b in range(3) for j in range(2))
