"""RISE against its formula, mask by mask and pixel by pixel; what it costs, and what it finds."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.interpretation.conftest import Net
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation import rise
from dprotonet.interpretation.nodes import ArrayNode, CallableNode, RegionNode
from dprotonet.interpretation.rise import Rise, random_masks

SIDE, HALF = 32, 16


def bright(count: int = 1, size: tuple[int, int] = (SIDE, SIDE)) -> Tensor:
    return torch.rand(count, 3, *size, generator=torch.Generator().manual_seed(0)) + 1


def masks_of(count: int, size: tuple[int, int], *, grid: int, keep: float, seed: int = 0) -> Tensor:
    return torch.cat(list(random_masks(count, size, grid=grid, keep=keep, seed=seed)))


# ── the formula ──────────────────────────────────────────────────────────────────────────────────────


def between(cells: np.ndarray, place: float) -> tuple[int, int, float]:
    """The two cells on either side of a place, counted from the centre of the first, and how far along."""
    place = min(max(place, 0.0), len(cells) - 1.0)
    low = math.floor(place)
    return low, min(low + 1, len(cells) - 1), place - low


def literal_mask(cells: np.ndarray, top: int, left: int, size: tuple[int, int]) -> np.ndarray:
    """A grid stretched over one cell more than the image has, seen through a window of the image's size."""
    grid = len(cells)
    tall, wide = (math.ceil(side / grid) * (grid + 1) for side in size)
    mask = np.zeros(size)
    for row in range(size[0]):
        for column in range(size[1]):
            up, down, y = between(cells, (top + row + 0.5) * grid / tall - 0.5)
            west, east, x = between(cells, (left + column + 0.5) * grid / wide - 0.5)
            upper = (1 - x) * cells[up, west] + x * cells[up, east]
            lower = (1 - x) * cells[down, west] + x * cells[down, east]
            mask[row, column] = (1 - y) * upper + y * lower
    return mask


def literal_masks(count: int, size: tuple[int, int], *, grid: int, keep: float, seed: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    cells = (torch.rand(count, grid, grid, generator=generator) < keep).double().numpy()
    tops, lefts = (
        torch.randint(math.ceil(side / grid), (count,), generator=generator).tolist() for side in size
    )
    return np.stack([literal_mask(cells[i], tops[i], lefts[i], size) for i in range(count)])


@pytest.mark.parametrize(("size", "grid"), [((10, 13), 3), ((9, 8), 4), ((3, 5), 8)])
def test_masks_are_enlarged_and_shifted(size: tuple[int, int], grid: int) -> None:
    found = masks_of(6, size, grid=grid, keep=0.4, seed=5)
    expected = literal_masks(6, size, grid=grid, keep=0.4, seed=5)
    assert found.shape == expected.shape
    assert np.abs(found.numpy() - expected).max() < 1e-5


def test_a_map_is_the_sum_of_masks_times_scores(model: Net) -> None:
    images, samples, keep = bright(2, (10, 13)) - 1.4, 7, 0.3
    masks = literal_masks(samples, (10, 13), grid=3, keep=keep, seed=2)
    with torch.no_grad():
        labels = model(images).argmax(dim=1).tolist()
    found = Rise(model, samples=samples, grid=3, keep=keep, seed=2, internal_batch_size=5).explain(images)
    for row, label in enumerate(labels):
        raw = np.zeros((10, 13))
        for mask in masks:
            masked = images[row].double() * torch.from_numpy(mask)
            with torch.no_grad():
                probability = Net().eval().double()(masked.unsqueeze(0)).softmax(dim=1)[0, label].item()
            raw += probability * mask
        raw /= samples * keep
        assert np.abs(found[row].raw.numpy() - raw).max() < 1e-4
        heat = (raw - raw.min()) / (raw.max() - raw.min())
        assert np.abs(found[row].heatmap.numpy() - heat).max() < 1e-3
        assert found[row].node == f"probability of class {label}"


# ── masks ────────────────────────────────────────────────────────────────────────────────────────────


def test_masks_show_the_share_that_was_asked_for() -> None:
    for keep in (0.1, 0.5):
        masks = masks_of(800, (16, 16), grid=4, keep=keep)
        assert masks.min() >= 0
        assert masks.max() <= 1
        assert masks.mean() == pytest.approx(keep, abs=0.02)
        assert masks.mean(dim=0).sub(keep).abs().max() < 0.08  # everywhere


def test_blocks_are_small_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(random_masks(50, (12, 10), grid=4, keep=0.5, seed=1))
    monkeypatch.setattr(rise, "_BLOCK_ELEMENTS", 7 * 120)
    blocks = list(random_masks(50, (12, 10), grid=4, keep=0.5, seed=1))
    assert [len(block) for block in whole] == [50]
    assert [len(block) for block in blocks] == [7] * 7 + [1]
    assert torch.equal(torch.cat(blocks), whole[0])


def test_another_seed_draws_other_masks(model: Net) -> None:
    first, again, other = (Rise(model, samples=20, seed=seed).explain(bright())[0].raw for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_images_of_a_call_see_the_same_masks() -> None:
    seen: list[Tensor] = []

    def remember(given: Tensor) -> Tensor:
        seen.append(given[:, 0].clone())
        return given.mean(dim=(1, 2, 3))

    Rise(samples=9, internal_batch_size=4).explain(torch.ones(2, 3, SIDE, SIDE), CallableNode(remember))
    masks = torch.cat(seen).unflatten(0, (9, 2))
    assert torch.equal(masks[:, 0], masks[:, 1])
    assert torch.equal(masks[:, 0], masks_of(9, (SIDE, SIDE), grid=8, keep=0.5))


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────


def test_questions_are_counted_and_come_in_small_batches() -> None:
    seen: list[int] = []

    def counting(images: np.ndarray) -> np.ndarray:
        seen.append(len(images))
        return images.mean(axis=(1, 2, 3))

    found = Rise(samples=40, internal_batch_size=13).explain(bright(2), ArrayNode(counting))
    assert max(seen) == 13
    assert sum(seen) == 2 * 40
    assert [item.passes for item in found] == [(40, 0)] * 2


def test_no_gradient_is_asked() -> None:
    def refusing(images: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        assert not images.requires_grad
        return images.mean(dim=(1, 2, 3))

    assert Rise(samples=5).explain(bright(), refusing)[0].passes == (5, 0)


# ── what it finds ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row", [0, HALF])
@pytest.mark.parametrize("column", [0, HALF])
def test_the_quarter_that_is_read_is_hot(row: int, column: int) -> None:
    quarter = (slice(row, row + HALF), slice(column, column + HALF))

    def reads_one_quarter(images: np.ndarray) -> np.ndarray:
        return np.asarray(images[(..., *quarter)].mean(axis=(1, 2, 3)))

    heat = Rise(samples=400, grid=4).explain(bright(), ArrayNode(reads_one_quarter))[0].heatmap
    inside, total = heat[quarter].mean().item(), heat.mean().item()
    assert inside > 2 * (4 * total - inside) / 3
    assert quarter[0].start <= heat.argmax().item() // SIDE < quarter[0].stop
    assert quarter[1].start <= heat.argmax().item() % SIDE < quarter[1].stop


def test_a_vector_counts_by_the_share_that_is_kept() -> None:
    def halves(images: Tensor) -> Tensor:
        """Two regions, the left half and the right."""
        return torch.stack([half.mean(dim=(2, 3)) for half in images.chunk(2, dim=3)], dim=1)

    node = RegionNode(halves, torch.tensor([0, 1]))
    left, right = Rise(samples=300, grid=4).explain(bright(2), node)
    assert left.passes == right.passes == (302, 0)  # the image itself and a blank one
    assert left.heatmap[:, :HALF].mean() > 1.5 * left.heatmap[:, HALF:].mean()
    assert right.heatmap[:, HALF:].mean() > 1.5 * right.heatmap[:, :HALF].mean()


def test_how_often_a_place_was_shown_is_no_explanation(caplog: pytest.LogCaptureFixture) -> None:
    """The sum of the masks themselves is not flat, and would be what is left of a constant node."""
    (found,) = Rise(samples=20).explain(bright(), lambda given: 0 * given.mean(dim=(1, 2, 3)) + 7)
    assert found.raw.max() - found.raw.min() > 0.1
    assert found.heatmap.max() == 0
    assert "is empty" in caplog.text


# ── what is refused, and what is told ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "settings", [{"samples": 0}, {"grid": 1}, {"keep": 0.0}, {"keep": 1.0}, {"samples": -3}]
)
def test_impossible_values_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="possible"):
        Rise(**settings)


def test_without_a_model_a_node_is_needed() -> None:
    with pytest.raises(UserError, match="this Rise has no model"):
        Rise().explain(bright())


def test_an_explanation_says_what_made_it() -> None:

    def function(given: Tensor) -> Tensor:
        return given.mean(dim=(1, 2, 3))

    (found,) = Rise(samples=6, grid=3, keep=0.25, seed=9).explain(
        bright(), CallableNode(function, name="brightness")
    )
    assert found.node == "brightness"
    assert found.facts["preset"] == "rise"
    assert found.facts["settings"] == {"samples": 6, "grid": 3, "keep": 0.25, "seed": 9}
    assert found.summary()["passes"] == {"forward": 6, "backward": 0}
