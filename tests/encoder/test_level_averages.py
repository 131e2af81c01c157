"""Averages of a backbone's levels: one pass, the same feature map, every resolution."""

import pytest
import torch

from dprotonet.encoder.backbone import load_backbone
from dprotonet.encoder.level_averages import LevelAverages, averages_of, every_level, seen_once
from dprotonet.encoder.levels import JoinedLevels, intermediates

IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_averages_and_deviations_are_those_of_the_places() -> None:
    level = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    found = averages_of(level)
    for image in range(2):
        for channel in range(3):
            places = level[image, channel].flatten()
            assert float(found[image, channel]) == pytest.approx(float(places.mean()), abs=1e-6)
            assert float(found[image, 3 + channel]) == pytest.approx(
                float(places.std(correction=0)), abs=1e-6
            )


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "vit_tiny_patch16_224"])
@torch.no_grad()
def test_every_resolution_is_there_and_the_feature_map_is_the_backbones(name: str) -> None:
    backbone = load_backbone(f"timm:{name}:none", image_size=64).eval()
    levels = every_level(backbone, 64)
    found = LevelAverages(backbone, levels.taken).seen(IMAGES)
    torch.testing.assert_close(found.feature_map, backbone(IMAGES))
    assert found.averages.shape == (2, sum(levels.widths))
    assert len(levels.widths) == len(levels.taken) + 1 >= 4
    torch.testing.assert_close(found.averages[:, -levels.widths[-1] :], averages_of(backbone(IMAGES)))
    if name != "vit_tiny_patch16_224":
        sides = [level.shape[-1] for level in intermediates(backbone.trunk, IMAGES, levels.taken)]
        assert sides == sorted(set(sides), reverse=True)


@torch.no_grad()
def test_joined_levels_give_their_own_map_beside_all_levels() -> None:
    plain = load_backbone("timm:resnet18:none", image_size=64).eval()
    joined = JoinedLevels(plain, 2, image_size=64, channels=32).eval()
    levels = every_level(joined, 64)
    found = LevelAverages(joined, levels.taken).seen(IMAGES)
    torch.testing.assert_close(found.feature_map, joined(IMAGES))
    torch.testing.assert_close(found.averages, LevelAverages(plain, levels.taken)(IMAGES))


@torch.no_grad()
def test_one_pass_gives_all_that_is_kept() -> None:
    """The same feature map, averages and pooled last map as passes for each alone."""
    plain = load_backbone("timm:resnet18:none", image_size=64).eval()
    joined = JoinedLevels(plain, 2, image_size=64, channels=32).eval()
    passes: list[int] = []
    plain.trunk.conv1.register_forward_pre_hook(lambda *_: passes.append(1))
    look = seen_once(joined, 64)
    passes.clear()
    kept = look(IMAGES)
    assert len(passes) == 1
    levels = every_level(joined, 64)
    assert torch.equal(kept.feature_map, joined(IMAGES).half())
    together = torch.cat([kept.averages, kept.pooled, kept.deviation], dim=1)
    assert torch.equal(together, LevelAverages(joined, levels.taken)(IMAGES).half())
    torch.testing.assert_close(kept.pooled.float(), plain(IMAGES).mean(dim=(-2, -1)), rtol=1e-3, atol=1e-3)
