"""What every Regions promises, and the laws that tie them together (appendix B)."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import (
    Masks,
    Occurrence,
    Parts,
    Patches,
    Points,
    Regions,
    spatial_masks,
    uniform_masks,
)
from dprotonet.errors import UserError
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import LogSimilarity
from dprotonet.network import DProtoNet

DIMENSION, SIZE, COUNT = 6, (4, 5), 7
CELLS = SIZE[0] * SIZE[1]
Maker = Callable[[int], Regions]


def array(seed: int) -> Tensor:
    """A user's own masks: stripes, the seed deciding where they begin."""
    steps = torch.arange(seed, seed + COUNT * DIMENSION * CELLS)
    return (steps % 7 / 6).reshape(COUNT, DIMENSION, *SIZE)


MAKERS: dict[str, Maker] = {
    "uniform": lambda seed: Masks(uniform_masks(COUNT, DIMENSION, SIZE, seed=seed), dimension=DIMENSION),
    "spatial": lambda seed: Masks(spatial_masks(COUNT, SIZE, seed=seed), dimension=DIMENSION),
    "array": lambda seed: Masks(array(seed), dimension=DIMENSION),
    "points": lambda seed: Points(DIMENSION, SIZE),
    "patches": lambda seed: Patches(DIMENSION, SIZE, patch=(2, 3)),
    "occurrence": lambda seed: Occurrence(DIMENSION - 2, 2, SIZE),  # the last two channels say where
    "parts": lambda seed: Parts(DIMENSION - 2, 4, 2, SIZE, sharpness=2),  # an even power of any number
}
MASKED = ("uniform", "spatial", "array")


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest) -> Maker:
    return MAKERS[request.param]


@pytest.fixture
def feature_map() -> Tensor:
    return torch.randn(3, DIMENSION, *SIZE, generator=torch.Generator().manual_seed(0))


def test_vectors_have_the_promised_shape(maker: Maker, feature_map: Tensor) -> None:
    regions = maker(0)
    assert regions(feature_map).shape == (3, regions.count, regions.dimension)


def test_footprints_are_weights_over_the_feature_map(maker: Maker) -> None:
    regions = maker(0)
    footprint = regions.footprint()
    assert footprint.shape == (regions.count, *SIZE)
    assert footprint.min() >= 0
    assert footprint.max() <= 1
    assert (footprint.sum(dim=(1, 2)) > 0).all()


def test_a_region_sees_its_footprint_and_nothing_else(maker: Maker) -> None:
    regions = maker(0)
    feature_map = torch.ones(1, DIMENSION, *SIZE, requires_grad=True)
    for vectors, footprint in zip(regions(feature_map)[0], regions.footprint(), strict=True):
        (gradient,) = torch.autograd.grad(vectors.sum(), feature_map, retain_graph=True)
        assert torch.equal(gradient[0].abs().sum(0) > 0, footprint > 0)


def test_the_gradient_reaches_every_value_of_the_feature_map(maker: Maker, feature_map: Tensor) -> None:
    feature_map.requires_grad_()
    vectors = maker(0)(feature_map)
    weights = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((vectors * weights).sum(), feature_map)
    assert (gradient != 0).all()


def test_one_image_is_a_row_of_many(maker: Maker, feature_map: Tensor) -> None:
    regions = maker(0)
    many = regions(feature_map)
    for row in range(3):
        torch.testing.assert_close(regions(feature_map[row : row + 1])[0], many[row])


def test_channels_last_maps_give_the_same_vectors(maker: Maker, feature_map: Tensor) -> None:
    regions = maker(0)
    turned = feature_map.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(regions(turned), regions(feature_map))


def test_the_seed_decides(maker: Maker, feature_map: Tensor) -> None:
    assert torch.equal(maker(3)(feature_map), maker(3)(feature_map))


def test_building_draws_from_no_global_generator(maker: Maker) -> None:
    before = torch.get_rng_state()
    maker(0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", MASKED)
def test_another_seed_gives_other_vectors(name: str, feature_map: Tensor) -> None:
    assert not torch.allclose(MAKERS[name](0)(feature_map), MAKERS[name](1)(feature_map))


def test_the_state_dict_carries_the_regions(maker: Maker, feature_map: Tensor) -> None:
    first, second = maker(0), maker(1)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(feature_map), first(feature_map))


@pytest.mark.parametrize("name", MASKED)
def test_masks_are_kept_but_not_trained(name: str) -> None:
    regions = MAKERS[name](0)
    assert list(regions.state_dict()) == ["masks"]
    assert list(regions.parameters()) == []


def test_bfloat16_maps_are_welcome(maker: Maker, feature_map: Tensor) -> None:
    regions = maker(0)
    half = feature_map.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = regions(half)
    vectors.float().sum().backward()
    assert half.grad is not None
    torch.testing.assert_close(vectors.float(), regions(feature_map), rtol=0.03, atol=0.03)


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────


def test_one_by_one_patches_are_points_are_one_hot_masks(feature_map: Tensor) -> None:
    points = Points(DIMENSION, SIZE)(feature_map)
    one_hot = torch.eye(CELLS).reshape(CELLS, 1, *SIZE)
    assert torch.equal(Patches(DIMENSION, SIZE, patch=(1, 1))(feature_map), points)
    torch.testing.assert_close(CELLS * Masks(one_hot, dimension=DIMENSION)(feature_map), points)
    full = one_hot.expand(-1, DIMENSION, -1, -1)
    torch.testing.assert_close(CELLS * Masks(full, dimension=DIMENSION)(feature_map), points)


@pytest.mark.parametrize("channels", [1, DIMENSION])
def test_the_all_ones_mask_is_the_global_average(channels: int, feature_map: Tensor) -> None:
    ones = Masks(torch.ones(1, channels, *SIZE), dimension=DIMENSION)
    torch.testing.assert_close(ones(feature_map)[:, 0], feature_map.mean(dim=(2, 3)))


def test_points_are_the_cells_row_by_row(feature_map: Tensor) -> None:
    assert torch.equal(Points(DIMENSION, SIZE)(feature_map)[1, 1 * SIZE[1] + 2], feature_map[1, :, 1, 2])


def test_patches_are_whole_blocks_row_by_row(feature_map: Tensor) -> None:
    found = Patches(DIMENSION, SIZE, patch=(2, 3))(feature_map)
    rows, columns = SIZE[0] - 1, SIZE[1] - 2
    for y in range(rows):
        for x in range(columns):
            block = feature_map[2, :, y : y + 2, x : x + 3]
            assert torch.equal(found[2, y * columns + x], block.flatten())


def test_a_block_of_ones_is_the_mean_of_the_patch(feature_map: Tensor) -> None:
    patches = Patches(DIMENSION, SIZE, patch=(2, 3))
    blocks = Masks(patches.footprint().unsqueeze(1), dimension=DIMENSION)
    cells = patches(feature_map).unflatten(-1, (DIMENSION, 6))  # (B, R, D, cells)
    torch.testing.assert_close(blocks(feature_map) * CELLS / 6, cells.mean(-1))


@pytest.mark.parametrize("contrast", [1.0, 0.5, 0.1])
def test_spatial_masks_weigh_alike_and_differ_between_regions(contrast: float) -> None:
    masks = spatial_masks(COUNT, SIZE, seed=0, contrast=contrast)
    means = masks.mean(dim=(1, 2, 3))
    torch.testing.assert_close(means, means[:1].expand(COUNT))
    assert masks.max() == 1
    lowest = masks.amin(dim=(1, 2, 3)) / masks.amax(dim=(1, 2, 3))
    assert (lowest >= 1 - contrast - 1e-6).all()
    apart = torch.cdist(masks.flatten(1), masks.flatten(1)) + torch.eye(COUNT)
    assert (apart > 0.1 * contrast).all()


def test_uniform_masks_fill_the_unit_interval_in_every_channel() -> None:
    masks = uniform_masks(50, DIMENSION, SIZE, seed=0)
    assert masks.shape == (50, DIMENSION, *SIZE)
    torch.testing.assert_close(masks.mean(dim=(0, 2, 3)), torch.full((DIMENSION,), 0.5), rtol=0.05, atol=0)
    assert masks.min() < 0.01
    assert masks.max() > 0.99


def test_permuting_prototypes_permutes_scores_and_leaves_logits_alone(
    maker: Maker, feature_map: Tensor
) -> None:
    regions = maker(0)
    encoder = Encoder(nn.Identity(), nn.Identity(), regions)  # type: ignore[arg-type]
    prototypes = Prototypes(3, 2, regions.dimension, similarity=LogSimilarity())
    network = DProtoNet(encoder, prototypes, Head(prototypes.prototype_class))
    network.head.weight.data = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
    before = network.evidence(feature_map)
    order = torch.tensor([5, 2, 0, 4, 1, 3])
    prototypes.vectors.data = prototypes.vectors.data[order]
    network.head.weight.data = network.head.weight.data[:, order]
    after = network.evidence(feature_map)
    torch.testing.assert_close(after.scores, before.scores[:, order])
    assert torch.equal(after.region, before.region[:, order])
    torch.testing.assert_close(after.logits, before.logits)
    torch.testing.assert_close(after.logits, after.scores @ network.head.weight.T)
    assert not torch.allclose(after.scores, before.scores)


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────


def spoilt(value: float) -> Tensor:
    masks = torch.full((COUNT, DIMENSION, *SIZE), 0.5)
    masks[2, 1, 0, 3] = value
    return masks


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01, 1.01])
def test_values_outside_the_unit_interval_are_refused(value: float) -> None:
    with pytest.raises(UserError, match=r"within \[0, 1\]"):
        Masks(spoilt(value), dimension=DIMENSION)


@pytest.mark.parametrize(
    "shape", [(COUNT, *SIZE), (COUNT, 2, *SIZE), (0, 1, *SIZE), (1, COUNT, 1, *SIZE), (3,)]
)
def test_masks_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="must be"):
        Masks(torch.full(shape, 0.5), dimension=DIMENSION)


@pytest.mark.parametrize("patch", [(5, 1), (1, 6), (0, 1)])
def test_patches_that_do_not_fit_are_refused(patch: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="do not fit"):
        Patches(DIMENSION, SIZE, patch=patch)


def test_masks_refuse_a_feature_map_of_another_size() -> None:
    with pytest.raises(ValueError, match="feature map"):
        MAKERS["spatial"](0)(torch.zeros(1, DIMENSION, 5, 4))
