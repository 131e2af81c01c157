"""Volumes (N, C, D, H, W): the same decoder with masks of three axes, where the deciding cube is known."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.masks import MaskStack, resized
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.ranked_masks import blurred

DEPTH, HEIGHT, WIDTH = 12, 16, 20
CUBE = (slice(2, 6), slice(8, 13), slice(3, 9))  # what decides
SHORT = {"fast": {}, "instant": {}, "sampled": {"samples": 400}, "paper": {"iterations": 60, "rate": 0.05}}


class BrightCube(nn.Module):
    """Class 1 is a bright cube at one place; nothing else counts, and no layer has places."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cube", torch.zeros(DEPTH, HEIGHT, WIDTH))
        self.cube[CUBE] = 1

    def forward(self, volumes: Tensor) -> Tensor:
        seen = (volumes[:, 0] * self.cube).sum(dim=(1, 2, 3)) / self.cube.sum()
        return torch.stack([1 - 2 * seen, 2 * seen - 1], dim=1)


class ConvolvedBright(nn.Module):
    """The mean of what is bright: wherever in the volume it is, and the deepest feature map shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv3d(1, 1, 3, padding=1), nn.ReLU(), nn.AvgPool3d((1, 2, 2)))
        nn.init.constant_(self.features[0].weight, 1 / 27)
        nn.init.constant_(self.features[0].bias, -0.5)

    def forward(self, volumes: Tensor) -> Tensor:
        seen = self.features(volumes).flatten(1).mean(dim=1)
        return torch.stack([1 - 100 * seen, 100 * seen - 1], dim=1)


def volumes(count: int = 1) -> Tensor:
    drawn = 0.3 * torch.rand(count, 1, DEPTH, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))
    drawn[:, 0, *CUBE] += 0.7
    return drawn


def share_in_cube(heat: Tensor) -> float:
    return float(heat[CUBE].sum() / heat.sum())


EXPECTED = share_in_cube(torch.ones(DEPTH, HEIGHT, WIDTH))  # of a map that says nothing


@pytest.mark.parametrize("name", SHORT)
def test_the_deciding_cube_is_found(name: str) -> None:
    (found,) = MDM(BrightCube(), preset=preset(name, **SHORT[name])).explain(volumes(), 1)
    assert found.heatmap.shape == (DEPTH, HEIGHT, WIDTH)
    assert 0 <= float(found.heatmap.min()) <= float(found.heatmap.max()) <= 1
    where = np.unravel_index(int(found.raw.argmax()), found.raw.shape)
    assert all(one.start - 1 <= place <= one.stop for one, place in zip(CUBE, where, strict=True)), where
    assert share_in_cube(found.heatmap) > 2.5 * EXPECTED


def test_the_cube_is_found_from_the_deepest_feature_map() -> None:
    network = ConvolvedBright()
    start = preset("instant", iterations=1, rate=1e-9)
    (guess,) = MDM(network, preset=start).explain(volumes(), 1)
    assert share_in_cube(guess.heatmap) > 5 * EXPECTED
    blind = MDM(lambda seen: network(seen), preset=start).explain(volumes(), 1)[0]
    assert share_in_cube(blind.heatmap) > 5 * EXPECTED  # a function of a network is looked into as well


@pytest.mark.parametrize("name", ["fast", "instant", "sampled", "paper"])
def test_a_volume_of_one_slice_is_an_image(name: str) -> None:
    flat = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
    flat = nn.Sequential(flat, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    deep = nn.Sequential(
        nn.Sequential(*[_deepened(layer) for layer in flat[0]]),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        flat[-1],
    ).eval()
    images = torch.rand(2, 2, 32, 40, generator=torch.Generator().manual_seed(1))
    chosen = preset(name, **SHORT[name])
    plain = MDM(flat, preset=chosen).explain(images, [0, 2])
    same = MDM(deep, preset=chosen).explain(images.unsqueeze(2), [0, 2])
    for one, other in zip(plain, same, strict=True):
        if name == "sampled":  # draws other maskings for another number of cells
            assert other.heatmap.shape == (1, 32, 40)
            continue
        torch.testing.assert_close(one.raw, other.raw[0], atol=2e-3, rtol=1e-3)
        assert one.passes == other.passes


def _deepened(layer: nn.Module) -> nn.Module:
    """The same layer for volumes of one slice."""
    if not isinstance(layer, nn.Conv2d):
        return layer
    deep = nn.Conv3d(layer.in_channels, layer.out_channels, (1, 3, 3), padding=(0, 1, 1))
    deep.weight.data, deep.bias.data = layer.weight.data.unsqueeze(2), layer.bias.data
    return deep


def test_a_row_of_volumes_is_each_alone() -> None:
    both = volumes(2)
    both[1] = both[1].flip(-1)
    row = MDM(ConvolvedBright()).explain(both, 1)
    for place, found in enumerate(row):
        (alone,) = MDM(ConvolvedBright()).explain(both[place], 1)  # (C, D, H, W) is one volume
        assert torch.equal(found.raw, alone.raw)


# ── oracles ──


def test_the_mean_of_masks_is_trilinear() -> None:
    draw = torch.Generator().manual_seed(2)
    shapes = {2: (2, 2, 2), (3, 4, 5): (3, 4, 5), 9: (7, 9, 9)}  # no more than the volume has slices
    vectors = {size: torch.rand(3, *shape, generator=draw) for size, shape in shapes.items()}
    literal = [
        nn.functional.interpolate(one.unsqueeze(1), size=(7, 11, 13), mode="trilinear", align_corners=False)
        for one in vectors.values()
    ]
    found = MaskStack(vectors).mean((7, 11, 13))
    torch.testing.assert_close(found, torch.stack(literal).mean(dim=0).squeeze(1))


def test_the_blur_is_a_gaussian_along_three_axes() -> None:
    volume = torch.rand(1, 2, 6, 7, 8, generator=torch.Generator().manual_seed(3))
    weights = [np.exp(-0.5 * (offset / 5) ** 2) for offset in range(-5, 6)]
    total, found = sum(weights) ** 3, blurred(volume)
    for z, y, x in [(0, 0, 0), (3, 4, 5), (5, 6, 7)]:
        literal = 0.0
        for dz in range(-5, 6):
            for dy in range(-5, 6):
                for dx in range(-5, 6):
                    at = min(max(z + dz, 0), 5), min(max(y + dy, 0), 6), min(max(x + dx, 0), 7)
                    literal += weights[dz + 5] * weights[dy + 5] * weights[dx + 5] * float(volume[0, 1][at])
        assert float(found[0, 1, z, y, x]) == pytest.approx(literal / total, rel=1e-4)


def test_a_shrunk_map_is_averaged_along_every_axis() -> None:
    heat = torch.rand(1, 8, 8, 8, generator=torch.Generator().manual_seed(4))
    small = resized(heat, (1, 1, 1))
    centre = 1 - (torch.arange(8) - 3.5).abs() / 8  # antialiasing weighs by a triangle, which the edge cuts
    line = centre / centre.sum()
    literal = torch.einsum("ndhw,d,h,w->n", heat, line, line, line)
    torch.testing.assert_close(small.flatten(), literal)


def test_algorithm_1_on_a_volume() -> None:
    network, volume = BrightCube(), volumes()
    chosen = preset("paper", sizes=(2, (3, 2, 4)), iterations=5, rate=0.05, reference=None)
    (found,) = MDM(network, preset=chosen).explain(volume, 1)
    total = torch.zeros(DEPTH, HEIGHT, WIDTH)
    for shape in ((2, 2, 2), (3, 2, 4)):
        mask = torch.full((1, 1, *shape), 0.5, requires_grad=True)
        adam = torch.optim.Adam([mask], lr=0.05)
        for _ in range(5):
            adam.zero_grad()
            shown = volume * nn.functional.interpolate(mask, size=volume.shape[2:], mode="trilinear")
            loss = (network(shown)[0, 1] - network(volume)[0, 1]) ** 2 + 10 * mask.abs().mean()
            loss.backward()
            adam.step()
            mask.data.clamp_(0, 1)
        total += nn.functional.interpolate(mask.detach(), size=volume.shape[2:], mode="trilinear")[0, 0]
    torch.testing.assert_close(found.raw, total, atol=1e-4, rtol=1e-4)


# ── what is saved and shown ──


def test_a_volume_is_saved_with_sheets_of_slices(tmp_path: Path) -> None:
    chosen = preset("instant", sizes=(6, (4, 5, 6)))
    (found,) = MDM(ConvolvedBright(), preset=chosen).explain(volumes(), 1)
    found.save(tmp_path)
    assert np.load(tmp_path / "heatmap.npy").shape == (DEPTH, HEIGHT, WIDTH)
    assert np.load(tmp_path / "mask04x05x06.npy").shape == (4, 5, 6)
    assert np.load(tmp_path / "mask06.npy").shape == (6, 6, 6)
    facts = json.loads((tmp_path / "explanation.json").read_text())
    assert facts["cuboid"] == found.cuboid()._asdict()
    assert Image.open(tmp_path / "overlay.png").size[0] > 4 * 100  # several slices side by side
    assert repr(found) == f"Explanation({found.node}, 12×16×20, {found.passes.forward} forward passes)"
    with pytest.raises(UserError, match=r"cuboid\(\)"):
        found.box()


def test_the_cuboid_goes_round_the_cube() -> None:
    (found,) = MDM(BrightCube()).explain(volumes(), 1)
    cuboid = found.cuboid(share=0.02)
    assert all(one.start - 2 <= first for one, first in zip(CUBE, cuboid[:3], strict=True)), cuboid
    assert all(last <= one.stop + 2 for one, last in zip(CUBE, cuboid[3:], strict=True)), cuboid


def test_attributions_have_the_shape_of_the_volume() -> None:
    two = volumes().repeat(1, 2, 1, 1, 1)
    attributions = MDM(BrightCube(), preset="instant").attribute(two, target=1)
    assert attributions.shape == two.shape


# ── what is refused ──


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.zeros(1, 1, 4, 8, 8, dtype=torch.uint8), "float tensor"),
        (torch.rand(3, 8, 8), "takes volumes"),
        (np.zeros((1, 1, 4, 8, 8), dtype=np.float32), "float tensor"),
    ],
)
def test_what_is_no_volume_is_refused(given: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        MDM(ConvolvedBright()).explain(given, 1)


def test_masks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"\(2, 2\) does not fit volumes"):
        MDM(ConvolvedBright(), preset=preset("fast", sizes=((2, 2),))).explain(volumes(), 1)
    with pytest.raises(UserError, match="tuples"):
        preset("fast", sizes=((0, 2, 2),))
