"""Truth by intervention: every function once more in loops, laws, and a network whose truth is planted."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dprotonet.data.birds import Birds
from dprotonet.data.birds.species import PARTS
from dprotonet.metrics.intervention import (
    hottest_part,
    importance,
    named_by_rows,
    part_correlation,
    part_heat,
    sibling_contrast,
    top_part_right,
)

NAN = math.nan
N, K, E, H, W = 6, 5, 3, 8, 9


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def some_parts(seed: int = 3) -> Tensor:
    """Disjoint parts (N, K, H, W); the last is unseen in the first two images."""
    owner = (random(N, H, W, seed=seed) * (K + 1)).long()
    parts = torch.stack([owner == k for k in range(K)], dim=1)
    parts[:2, -1] = False
    return parts


def with_gaps(values: Tensor, seed: int) -> Tensor:
    return values.masked_fill(random(*values.shape, seed=seed) < 0.2, NAN)


def close(found: Tensor, expected: list) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.double), equal_nan=True)


# oracles


def test_importance_is_the_mean_fall() -> None:
    before, after = random(N), with_gaps(random(N, K, E, seed=1), seed=2)
    after[4, 2] = NAN
    expected = []
    for n in range(N):
        row = []
        for k in range(K):
            falls = [float(before[n] - after[n, k, e]) for e in range(E) if not after[n, k, e].isnan()]
            row.append(sum(falls) / len(falls) if falls else NAN)
        expected.append(row)
    found = importance(before, after)
    close(found, expected)
    assert found[4, 2].isnan()


def test_heat_is_summed_and_averaged_pixel_by_pixel() -> None:
    maps, parts = random(N, H, W, seed=4), some_parts()
    total, mean = [[0.0] * K for _ in range(N)], [[NAN] * K for _ in range(N)]
    for n in range(N):
        for k in range(K):
            pixels = [float(maps[n, y, x]) for y in range(H) for x in range(W) if parts[n, k, y, x]]
            total[n][k] = sum(pixels) if pixels else NAN
            mean[n][k] = sum(pixels) / len(pixels) if pixels else NAN
    found = part_heat(maps, parts)
    close(found.total, total)
    close(found.mean, mean)
    assert found.total[:2, -1].isnan().all()


def loop_spearman(one: list[float], two: list[float]) -> float:
    """Pearson's coefficient of average ranks."""
    if len(one) < 2:
        return NAN

    def place(values: list[float], value: float) -> float:
        below, equal = sum(v < value for v in values), sum(v == value for v in values)
        return below + (equal + 1) / 2

    first, second = ([place(values, v) for v in values] for values in (one, two))
    means = sum(first) / len(first), sum(second) / len(second)
    product = sum((a - means[0]) * (b - means[1]) for a, b in zip(first, second, strict=True))
    scale = math.sqrt(sum((a - means[0]) ** 2 for a in first) * sum((b - means[1]) ** 2 for b in second))
    return product / scale if scale else NAN


def rough(seed: int) -> Tensor:
    """Values with ties and gaps."""
    return with_gaps((random(N, K, seed=seed) * 4).round(), seed=seed + 50)


@pytest.mark.parametrize("seed", range(5))
def test_correlation_is_spearmans_over_the_known_parts(seed: int) -> None:
    heat, weight = rough(seed), rough(seed + 100)
    expected = []
    for n in range(N):
        both = [
            (float(heat[n, k]), float(weight[n, k]))
            for k in range(K)
            if not (heat[n, k].isnan() or weight[n, k].isnan())
        ]
        expected.append(loop_spearman([a for a, _ in both], [b for _, b in both]))
    close(part_correlation(heat, weight), expected)


@pytest.mark.parametrize("seed", range(5))
def test_the_top_part_is_compared_ties_by_lot(seed: int) -> None:
    heat, weight = rough(seed), rough(seed + 100)
    expected = []
    for n in range(N):
        known = [k for k in range(K) if not (heat[n, k].isnan() or weight[n, k].isnan())]
        hottest = [k for k in known if heat[n, k] == max(heat[n, j] for j in known)]
        right = [k for k in hottest if weight[n, k] == max(weight[n, j] for j in known)]
        expected.append(len(right) / len(hottest) if len(known) > 1 else NAN)
    close(top_part_right(heat, weight), expected)


def test_rows_name_a_part() -> None:
    rows = 4
    heat, part = random(N, rows, K, seed=5), torch.tensor([0, 1, 2, 3, 4, 4])
    heat[2, :, 2] = NAN  # unseen in image 2
    heat[3, :, 0] = NAN  # another one is
    for k in range(1, rows + 1):
        expected = []
        for n in range(N):
            tops = []
            for r in range(k):
                seen = [j for j in range(K) if not heat[n, r, j].isnan()]
                tops.append(max(seen, key=lambda j: float(heat[n, r, j])))
            unseen = bool(heat[n, 0, part[n]].isnan())
            expected.append(NAN if unseen else float(int(part[n]) in tops))
        close(named_by_rows(heat, part, rows=k), expected)


def test_contrast_is_what_its_definition_says() -> None:
    classes, prototypes = 4, 8
    owner = torch.arange(prototypes) // 2
    weight = random(classes, prototypes, seed=6) - 0.5
    before, after = random(N, prototypes, seed=7), random(N, prototypes, seed=8)
    label = torch.tensor([0, 1, 2, 3, 0, 1])
    found = sibling_contrast(
        before, after, weight=weight, prototype_class=owner, label=label, sibling=label ^ 1
    )

    def evidence(scores: Tensor, c: int) -> float:
        return sum(float(weight[c, p] * scores[p]) for p in range(prototypes) if int(owner[p]) == c)

    def logit(scores: Tensor, c: int) -> float:
        return sum(float(weight[c, p] * scores[p]) for p in range(prototypes))

    sure = 0
    for n in range(N):
        a, b = int(label[n]), int(label[n]) ^ 1
        fell = evidence(before[n], a) - evidence(after[n], a)
        rose = evidence(after[n], b) - evidence(before[n], b)
        assert (float(found.own_fell[n]), float(found.sibling_rose[n])) == pytest.approx((fell, rose))
        margin = logit(before[n], a) - logit(before[n], b)
        later = logit(after[n], a) - logit(after[n], b)
        if margin <= 0:
            assert found.margin_share[n].isnan()
            assert found.turned[n].isnan()
        else:
            sure += 1
            share = max(-2, min(2, (margin - later) / margin))
            assert float(found.margin_share[n]) == pytest.approx(share)
            assert float(found.turned[n]) == float(later < 0)
    assert 0 < sure < N


# laws and what is undefined


def test_a_map_of_ones_has_the_area_as_its_sum_and_no_order_by_the_mean() -> None:
    parts, weight = some_parts(), random(N, K, seed=9)
    heat = part_heat(torch.ones(N, H, W), parts)
    seen = parts.flatten(2).any(dim=2)
    assert heat.total[seen].equal(parts.flatten(2).sum(dim=2)[seen].double())
    assert part_correlation(heat.mean, weight).isnan().all()
    assert top_part_right(heat.mean, weight).tolist() == pytest.approx([1 / 4, 1 / 4, *[1 / 5] * 4])


def test_the_importance_itself_agrees_with_itself() -> None:
    weight = random(N, K, seed=10)
    assert part_correlation(weight, weight).tolist() == pytest.approx([1] * N)
    assert part_correlation(-weight, weight).tolist() == pytest.approx([-1] * N)
    assert top_part_right(weight, weight).tolist() == [1] * N
    assert top_part_right(-weight, weight).tolist() == [0] * N


def test_a_batch_of_one_equals_a_row_of_many() -> None:
    heat, weight = rough(11), rough(12)
    for measure in (part_correlation, top_part_right):
        rows = torch.cat([measure(heat[n : n + 1], weight[n : n + 1]) for n in range(N)])
        torch.testing.assert_close(measure(heat, weight), rows, equal_nan=True)


def test_nothing_moves_when_nothing_is_exchanged() -> None:
    scores, owner = random(2, 4, seed=13), torch.tensor([0, 0, 1, 1])
    weight = torch.where(torch.arange(2).unsqueeze(1) == owner, 1.0, -0.5)
    label = torch.tensor([0, 1])
    found = sibling_contrast(
        scores, scores, weight=weight, prototype_class=owner, label=label, sibling=1 - label
    )
    assert found.own_fell.tolist() == found.sibling_rose.tolist() == [0, 0]
    swapped = sibling_contrast(
        torch.tensor([[2.0, 0, 1, 0]]),
        torch.tensor([[1.0, 0, 2, 0]]),
        weight=weight,
        prototype_class=owner,
        label=label[:1],
        sibling=label[1:],
    )
    assert [float(values) for values in swapped] == [1, 1, 2, 1]  # as sure of the sibling as it was


def test_no_part_seen_has_no_hottest() -> None:
    heat = torch.tensor([[0.2, NAN, 0.5], [NAN] * 3, [0.0, 0.0, NAN]])
    assert hottest_part(heat).tolist() == [2, -1, 0]


BROKEN: list[tuple[Callable[[], object], str]] = [
    (lambda: importance(torch.zeros(2), torch.zeros(2, 3)), "(N, K, E)"),
    (lambda: importance(torch.tensor([NAN]), torch.zeros(1, 2, 3)), "values before of image 0 contain NaN"),
    (lambda: part_heat(torch.zeros(1, 2, 2), torch.zeros(1, 3, 2, 2)), "bool (N, K, H, W)"),
    (lambda: part_heat(-torch.ones(1, 2, 2), torch.ones(1, 3, 2, 2).bool()), "negative"),
    (lambda: part_correlation(torch.zeros(2, 3), torch.zeros(3, 2)), "both must be (N, K)"),
    (lambda: top_part_right(torch.zeros(2), torch.zeros(2)), "both must be (N, K)"),
    (lambda: named_by_rows(torch.zeros(1, 3, 2), torch.tensor([0]), rows=4), "1 to 3"),
    (lambda: named_by_rows(torch.zeros(3, 2), torch.tensor([0]), rows=1), "(N, R, K)"),
]


@pytest.mark.parametrize(("call", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_what_cannot_be_measured_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        call()
    assert message in str(error.value)


# planted truth


@pytest.mark.parametrize("part", ["breast", "tail", "beak"])
def test_a_network_that_reads_one_part_is_found_out(part: str) -> None:
    """Its logit is how alike the part's pixels are to those of the original; heat there is the right map."""
    birds = Birds(species=4, per_species=1, split="test", size=96)
    found = []
    for index in range(4):
        sample = birds[index]
        mask = sample.parts[part].double()

        def logit(image: Tensor, image_before: Tensor = sample.image, mask: Tensor = mask) -> float:
            gap = (image.double() - image_before.double()).abs().mean(dim=0)
            return -float((gap * mask).sum() / mask.sum())

        seen = [name for name in PARTS if sample.parts[name].any()]
        after = torch.tensor(
            [[logit(other.image) for other in birds.exchanges(index, name, count=3)] for name in seen]
        )
        falls = importance(torch.zeros(1), after[None])
        parts = torch.stack([sample.parts[name] for name in seen])[None]
        assert seen[int(falls[0].argmax())] == part
        heat = part_heat(mask[None], parts)
        found.append([top_part_right(heat.mean, falls).item(), part_correlation(heat.mean, falls).item()])
        elsewhere = part_heat(sample.parts["wing"][None].double(), parts)
        assert top_part_right(elsewhere.total, falls).item() == 0
    right, correlation = torch.tensor(found, dtype=torch.double).mean(dim=0).tolist()
    assert right == 1
    assert correlation > 0.5
