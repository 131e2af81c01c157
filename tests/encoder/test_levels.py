"""Levels of a backbone joined into one map: the arithmetic, one contract over architectures, bad input."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dprotonet.encoder.backbone import load_backbone
from dprotonet.encoder.level_averages import LevelAverages
from dprotonet.encoder.levels import JoinedLevels, Joining, evened
from dprotonet.errors import UserError
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.settings.recipes import config_from


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny models: threads would spend their time waiting for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def joined(name: str = "resnet18", levels: int = 2, size: int = 64, channels: int = 24) -> JoinedLevels:
    torch.manual_seed(0)
    backbone = load_backbone(f"timm:{name}:none", image_size=size)
    return JoinedLevels(backbone, levels, image_size=size, channels=channels).eval()


def fitted(images: Tensor, **options: object) -> JoinedLevels:
    backbone = joined(**options)  # type: ignore[arg-type]
    assert list(backbone.fit(images.split(3))) == [3, 6, 8]
    return backbone


def photographs(size: int = 64) -> Tensor:
    return torch.randn(8, 3, size, size, generator=torch.Generator().manual_seed(1))


# ── the arithmetic, place by place in float64 ────────────────────────────────────────────────────────


def enlarged(level: np.ndarray, side: int) -> np.ndarray:
    """Bilinear, corners not aligned: (C, h, h) → (C, side, side), one place after the other."""
    small = level.shape[-1]
    out = np.zeros((len(level), side, side))
    for y in range(side):
        for x in range(side):
            v, u = (max((place + 0.5) * small / side - 0.5, 0.0) for place in (y, x))
            top, left = int(v), int(u)
            bottom, right = min(top + 1, small - 1), min(left + 1, small - 1)
            upper = level[:, top, left] * (1 - u + left) + level[:, top, right] * (u - left)
            lower = level[:, bottom, left] * (1 - u + left) + level[:, bottom, right] * (u - left)
            out[:, y, x] = upper * (1 - v + top) + lower * (v - top)
    return out


def expected(levels: list[np.ndarray], channels: int, coarse: float) -> np.ndarray:
    """Standardised, weighted, each level's first principal components: (B, D, h, h)."""
    side, fine, share = levels[0].shape[-1], levels[0].shape[1], channels // len(levels)
    found = []
    for number, level in enumerate(levels):
        columns = []
        for channel in range(level.shape[1]):
            maps = np.stack([enlarged(image[channel : channel + 1], side)[0] for image in level])
            unit = (maps - maps.mean()) / maps.std() if maps.std() > 0 else maps * 0
            columns.append(unit * (1.0 if number == 0 else math.sqrt(coarse * fine / level.shape[1])))
        places = np.stack(columns, axis=-1)  # (B, h, h, C)
        _, _, components = np.linalg.svd(places.reshape(-1, places.shape[-1]), full_matrices=False)
        kept = components[:share]
        kept = kept * np.sign(kept[np.arange(share), np.abs(kept).argmax(axis=1)])[:, None]
        found.append(places @ kept.T)
    joined = np.concatenate(found, axis=-1)
    joined /= math.sqrt(joined.reshape(-1, channels).var(axis=0).mean())
    return np.moveaxis(joined, -1, 1)


@pytest.mark.parametrize("levels", [2, 3])
def test_the_map_is_the_projection_of_each_level(levels: int) -> None:
    images = photographs()
    backbone = fitted(images, levels=levels, channels=6)
    with torch.no_grad():
        found = backbone(images).double().numpy()
        maps = [level.double().numpy() for level in backbone.maps(images)]
    wanted = expected(maps, 6, Joining().coarse)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_activations_are_evened_by_the_literal_root() -> None:
    values = [-4.0, -0.3, 0.0, 0.01, 1.0, 6.0]
    found = evened(torch.tensor(values, dtype=torch.float64), 0.5).tolist()
    for value, one in zip(values, found, strict=True):
        assert one == pytest.approx(math.copysign(math.sqrt(abs(value) + 0.01) - 0.1, value), abs=1e-12)
    zero = torch.zeros(3, requires_grad=True)
    evened(zero, 0.5).sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


def test_only_coarser_levels_are_evened() -> None:
    images = photographs()
    plain = joined()
    rooted = JoinedLevels(plain, 2, image_size=64, channels=24, joining=Joining(power=0.5)).eval()
    with torch.no_grad():
        (fine, coarse), (same, less) = plain.maps(images), rooted.maps(images)
    assert torch.equal(fine, same)
    torch.testing.assert_close(less, evened(coarse, 0.5))


def test_the_weights_are_those_of_the_pilots() -> None:
    """Beside Lite0's 112 channels of stride 16, each of its 1280 of stride 32 keeps 0.35 of its spread."""
    assert math.sqrt(Joining().coarse * 112 / 1280) == pytest.approx(0.35, abs=1e-3)


def test_channels_without_spread_are_left_out() -> None:
    backbone = joined()
    with torch.no_grad():
        for name, parameter in backbone.trunk.layer3.named_parameters():
            if "bn" in name or "downsample.1" in name:
                parameter[5] = 0.0  # channel 5 of stride 16 is 0 everywhere
    for _ in backbone.fit([photographs()]):
        pass
    fine = backbone.projections[0].weight
    assert fine.isfinite().all()
    assert not fine[:, 5].any()
    assert fine[:, 4].any()


def test_fitting_twice_gives_the_same_and_leaves_modes_alone() -> None:
    images = photographs()
    first, second = fitted(images), joined().train()
    for _ in second.fit(images.split(3)):
        assert second.training
        assert second.trunk.training
    assert second.training
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


def test_without_images_nothing_is_fitted() -> None:
    with pytest.raises(UserError, match="without images"):
        list(joined().fit([]))


# ── one contract over architectures ──────────────────────────────────────────────────────────────────

# name, image size, levels, side of the joined map, side of the last map
ARCHITECTURES = [
    ("resnet18", 64, 2, 4, 2),
    ("resnet18", 64, 3, 8, 2),
    ("tf_efficientnet_lite0", 64, 2, 4, 2),
    ("vgg11", 64, 2, 4, 2),
    ("densenet121", 64, 2, 4, 2),
    ("convnext_atto", 64, 2, 4, 2),
    ("mobilenetv3_small_100", 64, 2, 4, 2),
    ("vit_tiny_patch16_224", 64, 2, 4, 4),
    ("test_vit3", 64, 2, 4, 4),
    ("deit_tiny_distilled_patch16_224", 64, 3, 4, 4),
    ("swin_tiny_patch4_window7_224", 64, 2, 4, 2),
]


@pytest.mark.parametrize(
    ("name", "size", "levels", "side", "last"),
    ARCHITECTURES,
    ids=[f"{row[0]}-{row[2]}" for row in ARCHITECTURES],
)
def test_every_architecture_gives_a_finer_map_with_gradients(name, size, levels, side, last) -> None:
    plain = load_backbone(f"timm:{name}:none", image_size=size).eval()
    backbone = JoinedLevels(plain, levels, image_size=size, channels=16).eval()
    assert backbone.feature_size(size) == (side, side)
    assert (backbone.channels, backbone.mean, backbone.spec) == (16, plain.mean, plain.spec)
    images = torch.rand(2, 3, size, size)
    found = backbone(images)
    assert found.shape == (2, 16, side, side)
    assert torch.allclose(found[:1], backbone(images[:1]), atol=1e-4)
    maps = backbone.maps(images)
    assert len(maps) == levels
    assert torch.equal(maps[-1], plain(images))  # the coarsest is what one level would give
    assert maps[-1].shape[-1] == last
    found.square().mean().backward()
    idle = [key for key, parameter in backbone.named_parameters() if parameter.grad is None]
    assert not idle


def test_few_channels_are_all_kept() -> None:
    assert joined("test_vit3", channels=1000).channels == 2 * 96


def test_images_of_another_shape_are_taken() -> None:
    assert joined()(torch.rand(1, 3, 96, 64)).shape == (1, 24, 6, 4)


def test_more_levels_than_there_are_is_an_error() -> None:
    with pytest.raises(UserError, match="resnet18 has 5 levels to join, not 6; lower --levels"):
        joined(levels=6)


def test_a_trunk_that_shows_its_last_map_only_is_an_error() -> None:
    with pytest.raises(UserError, match="inception_v3 shows no maps but its last; give --levels 1"):
        joined("inception_v3", size=96)


# ── in a network ─────────────────────────────────────────────────────────────────────────────────────


def test_one_level_is_the_network_of_before() -> None:
    """Neither names nor numbers of it know of levels, so that stored runs and caches stay valid."""
    networks = []
    for table in ({}, {"levels": 1, "level_channels": 7}):
        network = {"backbone": "timm:resnet18:none", "dimension": 8, **table}
        config = config_from({"recipe": "masks", "network": network})
        torch.manual_seed(0)
        networks.append(build_network(config.network, classes=2, image_size=64, pretrained=False))
    first, second = (network.state_dict() for network in networks)
    assert not any("projections" in name for name in first)
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_feature_channels_are_the_principal_components_of_the_last_map() -> None:
    """Of the same images the first components keep the most of the spread that all of them have."""
    table = {"backbone": "timm:resnet18:none", "dimension": 8, "feature_channels": 6}
    network = build_network(
        config_from({"recipe": "masks", "network": table}).network,
        classes=2,
        image_size=64,
        pretrained=False,
    ).eval()
    backbone = network.encoder.backbone
    assert isinstance(backbone, JoinedLevels)
    images = torch.rand(8, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert list(backbone.fit([images[:5], images[5:]])) == [5, 8]
    with torch.no_grad():
        found, whole = backbone(images), backbone.last_map(images)
    assert found.shape == (8, 6, *whole.shape[2:])
    places = whole.double().movedim(1, -1).flatten(0, 2)
    standard = (places - places.mean(0)) / places.std(0, correction=0).clamp_min(1e-12)
    directions = torch.linalg.svd(standard, full_matrices=False).Vh[:6]
    literal = standard @ directions.T
    mine = found.double().movedim(1, -1).flatten(0, 2)
    scale = (literal.square().mean().sqrt() / mine.square().mean().sqrt()).item()
    torch.testing.assert_close((scale * mine).abs(), literal.abs(), rtol=1e-2, atol=1e-2)
    seen = LevelAverages(backbone, ()).seen(images)
    torch.testing.assert_close(seen.feature_map, found)
    assert seen.averages.shape == (8, 2 * whole.shape[1])


def test_the_projection_belongs_to_the_backbone() -> None:
    table = {"backbone": "timm:resnet18:none", "dimension": 8, "levels": 2, "level_channels": 16}
    network = build_network(
        config_from({"network": table}).network, classes=2, image_size=64, pretrained=False
    )
    backbone = network.parts()["backbone"]
    assert isinstance(backbone, JoinedLevels)
    assert "projections.0.weight" in dict(backbone.named_parameters())
    images = torch.rand(2, 3, 64, 64)
    network.eval()
    whole, tail = network(images), network.without_backbone()(backbone(images))
    assert torch.equal(whole, tail)
