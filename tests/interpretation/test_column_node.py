"""Many questions in one call: every row gets its own column's map, and equal maskings are asked once."""

import numpy as np
import pytest
import torch

from dprotonet.errors import UserError
from dprotonet.interpretation.column_node import ColumnNode
from dprotonet.interpretation.mdm import MDM
from dprotonet.interpretation.sampled import SampledMasks

SIDE, HALF = 32, 16
SMALL = SampledMasks(samples=150, block=40, sizes=(4, 6, 8))


def halves(images: np.ndarray) -> np.ndarray:
    return np.stack([images[..., :HALF].mean((1, 2, 3)), images[..., HALF:].mean((1, 2, 3))], axis=1)


def image() -> torch.Tensor:
    return torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) + 1


def test_one_image_in_two_respects_costs_as_much_as_in_one() -> None:
    seen: list[int] = []

    def counting(images: np.ndarray) -> np.ndarray:
        seen.append(len(images))
        return halves(images)

    node = ColumnNode(counting, [0, 1], names=["left", "right"])
    left, right = MDM(preset=SMALL, internal_batch_size=32).explain(image().expand(2, -1, -1, -1), node)
    assert left.heatmap[:, :HALF].mean() > 3 * left.heatmap[:, HALF:].mean()
    assert right.heatmap[:, HALF:].mean() > 3 * right.heatmap[:, :HALF].mean()
    assert [left.node, right.node] == ["left", "right"]
    maskings = sum(seen) - 2 * 2  # the image and a blank one, for each row by itself
    assert maskings == 150


def test_answers_are_those_of_each_image_by_itself() -> None:
    first, second = image(), 2 * image()
    images = torch.cat([first, first, second, first])
    rows = torch.tensor([0, 1, 1, 0])
    found = ColumnNode(halves, [0, 1], names=["left", "right"])(images, rows)
    for value, one, row in zip(found, images, rows.tolist(), strict=True):
        assert float(value) == pytest.approx(float(halves(one.unsqueeze(0).numpy())[0, row]))


def test_bad_answers_and_counts() -> None:
    node = ColumnNode(lambda images: images.mean((1, 2, 3)), [0], names=["mean"])
    with pytest.raises(UserError, match="not \\(B, K\\)"):
        node(image(), torch.tensor([0]))
    with pytest.raises(UserError, match="exactly one per image"):
        node.check(2)
