"""The preset that only asks: it finds what was planted, counts its questions, and never wants a gradient."""

import numpy as np
import pytest
import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.masking_task import Step
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import ArrayNode, CallableNode, RegionNode
from dprotonet.interpretation.sampled import SampledMasks

SIDE, HALF = 32, 16
SAMPLES = 150
SMALL = SampledMasks(samples=SAMPLES, block=40, sizes=(4, 6, 8))


def bright(count: int = 1) -> Tensor:
    return torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) + 1


def asked(function: object, count: int = 1, by: SampledMasks = SMALL) -> list[Explanation]:
    return MDM(preset=by, internal_batch_size=13).explain(bright(count), ArrayNode(function))  # type: ignore[arg-type]


@pytest.mark.parametrize("row", [0, HALF])
@pytest.mark.parametrize("column", [0, HALF])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_quarter_that_is_read_is_hot(row: int, column: int, sign: int) -> None:
    quarter = (slice(row, row + HALF), slice(column, column + HALF))

    def reads_one_quarter(images: np.ndarray) -> np.ndarray:
        return sign * images[(..., *quarter)].mean(axis=(1, 2, 3))

    heat = asked(reads_one_quarter)[0].heatmap
    inside, total = heat[quarter].mean().item(), heat.mean().item()
    outside = (4 * total - inside) / 3
    assert inside > 0.6
    assert inside > 4 * outside
    assert quarter[0].start <= heat.argmax().item() // SIDE < quarter[0].stop
    assert quarter[1].start <= heat.argmax().item() % SIDE < quarter[1].stop


def test_every_image_has_its_own_map() -> None:
    images = bright(2)

    def reads_the_top_or_the_bottom(given: np.ndarray) -> np.ndarray:
        """By what is in the corner, which masks do not tell apart from black."""
        top, bottom = given[:, :, :HALF].mean(axis=(1, 2, 3)), given[:, :, HALF:].mean(axis=(1, 2, 3))
        return np.where(given[:, 0].max(axis=(1, 2)) > 3, top, bottom)

    images[0, 0] *= 4
    decoder = MDM(preset=SMALL)
    first, second = decoder.explain(images, ArrayNode(reads_the_top_or_the_bottom))
    assert first.heatmap[:HALF].mean() > 3 * first.heatmap[HALF:].mean()
    assert second.heatmap[HALF:].mean() > 3 * second.heatmap[:HALF].mean()


def test_questions_are_counted() -> None:
    seen: list[int] = []

    def counting(images: np.ndarray) -> np.ndarray:
        seen.append(len(images))
        return images.mean(axis=(1, 2, 3))

    found = asked(counting, count=2)
    assert max(seen) <= 13
    assert sum(seen) == 2 * (SAMPLES + 2)  # the image itself and a blank one
    assert [item.passes for item in found] == [(SAMPLES + 2, 0)] * 2


def test_no_gradient_is_asked() -> None:
    def refusing(images: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        assert not images.requires_grad
        return images.mean(dim=(1, 2, 3))

    assert MDM(preset=SMALL).explain(bright(), CallableNode(refusing))[0].passes.backward == 0


def test_vectors_are_explained_too() -> None:
    """A region's vector; it is kept as long as the right half is shown."""

    def regions(images: Tensor) -> Tensor:
        halves = torch.stack([images[..., :HALF], images[..., HALF:]], dim=1)
        return halves.mean(dim=(3, 4))  # (B, 2, 3)

    node = RegionNode(regions, torch.tensor([1]))
    heat = MDM(preset=SMALL).explain(bright(), node)[0].heatmap
    assert heat[:, HALF:].mean() > 3 * heat[:, :HALF].mean()


def test_steps_come_in_blocks_and_the_last_is_the_result() -> None:
    steps: list[Step] = []
    node = ArrayNode(lambda images: images[..., :HALF].mean(axis=(1, 2, 3)))
    found = MDM(preset=SMALL).explain(bright(), node, on_step=steps.append)[0]  # type: ignore[arg-type]
    assert [(step.number, step.total) for step in steps] == [(n, 4) for n in (1, 2, 3, 4)]
    assert torch.equal(found.raw, steps[-1].raw[0])
    assert list(found.masks) == [4, 6, 8]
    assert all(found.masks[size].shape == (size, size) for size in found.masks)
    early = MDM(preset=SMALL).explain(bright(), node, on_step=lambda step: step.number == 2)[0]
    assert early.passes.forward == 2 * 40 + 2


def test_the_seed_decides() -> None:
    def left(images: np.ndarray) -> np.ndarray:
        return images[..., :HALF].mean(axis=(1, 2, 3))

    first, again, other = (
        asked(left, by=SampledMasks(samples=60, seed=seed))[0].heatmap for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_masks_are_within_the_unit_interval_and_show_half() -> None:
    masks = SMALL._maskings(300, (30, 21), torch.Generator().manual_seed(0))
    assert masks.shape == (300, 30, 21)
    assert masks.min() >= 0
    assert masks.max() <= 1 + 1e-6
    assert masks.mean().item() == pytest.approx(SMALL.keep, abs=0.02)
    assert (masks.mean(dim=0) - SMALL.keep).abs().max() < 0.1  # every place alike


@pytest.mark.parametrize(
    "change", [{"samples": 1}, {"block": 0}, {"grid": 1}, {"keep": 1.0}, {"ridge": 0.0}, {"sizes": ()}]
)
def test_impossible_values_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match="possible"):
        preset("sampled", **change)
