"""Pairs of places: planted right and swapped ones, and places that stay or move by a known distance."""

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.row_places import kept_share, place_rank


def scene(seed: int, where: dict[int, tuple[int, int]]) -> Tensor:
    """Features (16, 7, 7) of noise, with part k, a direction of its own, at a cell."""
    features = 0.3 * torch.randn((16, 7, 7), generator=torch.Generator().manual_seed(seed))
    for part, (y, x) in where.items():
        features[part, y, x] += 5
    return features


def point(cell: tuple[int, int]) -> list[float]:
    return [(cell[1] + 0.5) / 7, (cell[0] + 0.5) / 7]


HERE, THERE = {0: (1, 1), 1: (5, 5), 2: (3, 0)}, {0: (6, 2), 1: (0, 4), 2: (2, 6)}
IMAGE, SOURCE = scene(1, HERE), scene(2, THERE)


@pytest.mark.parametrize("part", HERE)
def test_the_same_part_at_another_place_agrees(part: int) -> None:
    pair = torch.tensor([point(HERE[part]), point(THERE[part])])
    assert place_rank(IMAGE, SOURCE, pair) == 0


@pytest.mark.parametrize("part", HERE)
def test_swapped_places_are_found_though_one_of_them_may_lie_nearer(part: int) -> None:
    pair = torch.tensor([point(HERE[part]), point(THERE[(part + 1) % 3])])
    assert place_rank(IMAGE, SOURCE, pair) > 0.05
    same_spot = torch.tensor([point(HERE[part]), point(HERE[part])])  # background of the other image
    assert place_rank(IMAGE, SOURCE, same_spot) > 0.05


def test_it_is_the_same_in_both_directions_and_on_any_grid() -> None:
    pair = torch.tensor([point(HERE[0]), point(THERE[1])])
    assert place_rank(IMAGE, SOURCE, pair) == place_rank(SOURCE, IMAGE, pair.flip(0))
    wide = scene(2, THERE).repeat_interleave(2, dim=2)
    assert place_rank(IMAGE, wide, torch.tensor([point(HERE[0]), point(THERE[0])])) == 0


def test_the_rank_is_counted_place_by_place() -> None:
    """Slow and literal."""
    pair = torch.tensor([point((2, 3)), point((4, 1))])

    def cosine(a: Tensor, b: Tensor) -> float:
        return float(a @ b / (a.norm() * b.norm()))

    mine, other = IMAGE[:, 2, 3], SOURCE[:, 4, 1]
    better = [
        sum(
            cosine(wanted, features[:, y, x]) > cosine(mine, other) + 1e-6 for y in range(7) for x in range(7)
        )
        / 49
        for wanted, features in ((mine, SOURCE), (other, IMAGE))
    ]
    assert place_rank(IMAGE, SOURCE, pair) == pytest.approx(sum(better) / 2)


def test_kept_share() -> None:
    before = torch.tensor([[0.5, 0.5], [0.2, 0.2]])
    after = torch.stack([before, before + 0.1, before + torch.tensor([[0.0, 0.0], [0.2, 0.0]]), before])
    assert kept_share(before, after).tolist() == [1.0, 0.75]


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="wanted"):
        place_rank(IMAGE, SOURCE[:8], torch.zeros(2, 2))
    with pytest.raises(ValueError, match="wanted"):
        kept_share(torch.zeros(2, 2), torch.zeros(4, 3, 2))
