"""Deletion, insertion, AD, AI and AG: laws, guards and messages; the literal formulas are in oracles."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dprotonet.metrics.controls import all_but_one, random_maps
from dprotonet.metrics.faithfulness import (
    RiseProtocol,
    area_under,
    average_drop,
    average_gain,
    average_increase,
    deletion_curves,
    explained_images,
    insertion_curves,
    ranks,
)

N, SIZE = 5, (12, 10)
PIXELS = SIZE[0] * SIZE[1]
PROTOCOL = RiseProtocol(steps=6)
Curves = Callable[..., Tensor]
both = pytest.mark.parametrize("curves", [deletion_curves, insertion_curves])


def images(*, n: int = N, seed: int = 0) -> Tensor:
    return torch.randn(n, 3, *SIZE, generator=torch.Generator().manual_seed(seed))


class Planted:
    """A linear model for each image, squashed to (0, 1); remembers the sizes of its batches."""

    def __init__(self, n: int = N, seed: int = 1) -> None:
        self.weights = torch.randn(n, 3, *SIZE, generator=torch.Generator().manual_seed(seed))
        self.sizes: list[int] = []

    def __call__(self, given: Tensor, rows: Tensor) -> Tensor:
        self.sizes.append(len(given))
        return torch.sigmoid((given * self.weights[rows]).sum(dim=(1, 2, 3)) / 10)

    def contribution(self, given: Tensor) -> Tensor:
        """What each pixel adds to the logit (N, H, W): the perfect map for deletion."""
        return (given * self.weights).sum(dim=1)


def mean_value(given: Tensor, rows: Tensor) -> Tensor:
    return given.mean(dim=(1, 2, 3))


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


def test_ranks_go_from_hot_to_cold_and_ties_in_reading_order() -> None:
    maps = torch.tensor([[[1.0, 5.0, 1.0], [0.0, 1.0, 5.0]], [[0.0, -0.0, 0.0], [-1.0, 2.0, 0.0]]])
    expected = [[[2, 0, 3], [5, 4, 1]], [[1, 2, 3], [5, 0, 4]]]
    assert ranks(maps).tolist() == expected
    assert ranks(maps).dtype == torch.int64


def test_ties_stay_in_reading_order_where_an_unstable_sort_would_mix_them() -> None:
    flat = torch.zeros(2, 64, 64)
    assert ranks(flat).flatten(1).equal(torch.arange(64 * 64).expand(2, -1))


@pytest.mark.parametrize("view", [lambda m: m.transpose(1, 2), lambda m: m[:1].expand(3, -1, -1)])
def test_ranks_do_not_depend_on_the_memory_layout(view: Callable[[Tensor], Tensor]) -> None:
    maps = view(random_maps(3, SIZE, seed=0))
    assert ranks(maps).equal(ranks(maps.clone(memory_format=torch.contiguous_format)))


def test_a_nan_is_reported_with_its_image() -> None:
    maps = random_maps(3, SIZE, seed=0)
    maps[2, 4, 5] = torch.nan
    with pytest.raises(ValueError, match="maps of image 2 contain NaN"):
        ranks(maps)
    with pytest.raises(ValueError, match="image 2"):
        deletion_curves(mean_value, images(n=3), maps, protocol=PROTOCOL)
    with pytest.raises(ValueError, match="heatmaps of image 2"):
        explained_images(images(n=3), maps, keep=None)


@pytest.mark.parametrize("shape", [(4, 4), (1, 1, 4, 4), (0, 4, 4), (2, 0, 4)])
def test_ranks_want_images_by_rows_by_columns(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(N, H, W\)"):
        ranks(torch.zeros(shape))


# ── curves ───────────────────────────────────────────────────────────────────────────────────────────


def test_protocols_that_differ_in_meaning_differ_in_name() -> None:
    assert RiseProtocol().name == "rise-28"
    assert RiseProtocol(steps=224, batch=1).name == "rise-224"
    names = {RiseProtocol(), RiseProtocol(kernel=13), RiseProtocol(sigma=4.5), RiseProtocol(steps=4)}
    assert len({protocol.name for protocol in names}) == 4


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"kernel": 10}, {"kernel": -1}, {"sigma": 0.0}, {"batch": 0}]
)
def test_impossible_protocols_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        RiseProtocol(**wrong)


def test_at_224_pixels_every_step_takes_1792() -> None:
    curves = deletion_curves(
        mean_value,
        torch.ones(1, 1, 224, 224).double(),
        random_maps(1, (224, 224), 0),
        protocol=RiseProtocol(),
    )
    assert torch.allclose(curves[0], 1 - torch.arange(29).double() / 28)
    assert curves.shape == (1, 29)


def test_where_steps_do_not_divide_the_pixels_all_are_gone_in_the_end() -> None:

    def score(given: Tensor, rows: Tensor) -> Tensor:
        return given.sum(dim=(1, 2, 3))

    curves = deletion_curves(
        score, torch.ones(1, 1, 5, 5), torch.rand(1, 5, 5), protocol=RiseProtocol(steps=4)
    )
    assert curves.tolist() == [[25, 19, 13, 7, 0]]


def test_deletion_begins_with_the_image_and_ends_with_zeros() -> None:
    score, rows = Planted(), torch.arange(N)
    curves = deletion_curves(score, images(), random_maps(N, SIZE, 0), protocol=PROTOCOL)
    assert torch.allclose(curves[:, 0], score(images(), rows))
    assert torch.allclose(curves[:, -1], torch.full((N,), 0.5))
    assert not torch.allclose(curves[:, 0], curves[:, 1])


def test_insertion_begins_with_the_blur_and_ends_with_the_image() -> None:
    score, rows = Planted(), torch.arange(N)
    curves = insertion_curves(score, images(), random_maps(N, SIZE, 0), protocol=PROTOCOL)
    assert torch.allclose(curves[:, -1], score(images(), rows))
    sharp = insertion_curves(
        score, images(), random_maps(N, SIZE, 0), protocol=RiseProtocol(steps=6, kernel=1)
    )
    assert torch.allclose(sharp, curves[:, -1:].expand_as(sharp))  # a kernel of one pixel blurs nothing
    assert not torch.allclose(curves[:, 0], curves[:, -1])


def test_the_blur_counts_the_outside_as_zero() -> None:
    seen: list[Tensor] = []

    def score(given: Tensor, rows: Tensor) -> Tensor:
        seen.append(given)
        return rows.float()

    insertion_curves(score, torch.ones(1, 1, 30, 30), torch.rand(1, 30, 30), protocol=RiseProtocol(steps=1))
    blurred = seen[0][0, 0]
    assert torch.allclose(blurred[5:-5, 5:-5], torch.ones(20, 20))  # the weights sum to one
    assert blurred[0, 15] < 0.7
    assert blurred[0, 0] < 0.45


@both
def test_curves_are_the_same_in_batches_of_any_size_and_never_exceed_it(curves: Curves) -> None:
    maps = random_maps(N, SIZE, 0)
    whole = curves(Planted(), images(), maps, protocol=RiseProtocol(steps=6, batch=1000))
    for batch in (1, 4, 35):
        score = Planted()
        again = curves(score, images(), maps, protocol=RiseProtocol(steps=6, batch=batch))
        assert torch.allclose(again, whole, atol=1e-6)
        assert max(score.sizes) == batch
        assert sum(score.sizes) == N * 7


@both
def test_permuting_images_permutes_values(curves: Curves) -> None:
    score, order = Planted(), torch.tensor([3, 0, 4, 1, 2])
    given, maps = images(), random_maps(N, SIZE, 0)
    expected = curves(score, given, maps, protocol=PROTOCOL)[order]
    score.weights = score.weights[order]
    assert torch.allclose(curves(score, given[order], maps[order], protocol=PROTOCOL), expected, atol=1e-6)


@both
def test_the_layout_of_images_in_memory_does_not_matter(curves: Curves) -> None:
    maps, last = random_maps(N, SIZE, 0), images().to(memory_format=torch.channels_last)
    expected = curves(Planted(), images(), maps, protocol=PROTOCOL)
    assert torch.allclose(curves(Planted(), last, maps, protocol=PROTOCOL), expected, atol=1e-6)


def test_the_perfect_map_deletes_and_inserts_better_than_chance_and_than_its_opposite() -> None:
    score, given = Planted(), images()
    perfect, chance = score.contribution(given), random_maps(N, SIZE, 0)
    gone = [
        area_under(deletion_curves(score, given, m, protocol=PROTOCOL)) for m in (perfect, chance, -perfect)
    ]
    assert (gone[0] < gone[1]).all()
    assert (gone[1] < gone[2]).all()
    kept = [area_under(insertion_curves(score, given, m, protocol=PROTOCOL)) for m in (perfect, -perfect)]
    assert (kept[0] > kept[1]).all()


@both
def test_curves_only_look_at_the_order_of_the_map(curves: Curves) -> None:
    maps = random_maps(N, SIZE, 0)
    expected = curves(Planted(), images(), maps, protocol=PROTOCOL)
    assert curves(Planted(), images(), 100 * maps**3 - 7, protocol=PROTOCOL).equal(expected)


def test_curves_keep_no_graph_and_at_least_single_precision() -> None:
    weights = torch.ones((), requires_grad=True)

    def score(given: Tensor, rows: Tensor) -> Tensor:
        return (mean_value(given, rows) * weights).half()

    curves = deletion_curves(score, images(), random_maps(N, SIZE, 0), protocol=PROTOCOL)
    assert not curves.requires_grad
    assert curves.dtype == torch.float32


@both
def test_a_score_of_all_classes_is_refused(curves: Curves) -> None:
    with pytest.raises(ValueError, match=r"score gave \(35, 3\) for 35 images"):
        curves(
            lambda given, rows: torch.rand(len(rows), 3), images(), torch.rand(N, *SIZE), protocol=PROTOCOL
        )


@both
@pytest.mark.parametrize("shape", [(N, 10, 12), (N - 1, *SIZE), (N, 1, *SIZE)])
def test_maps_that_do_not_fit_the_images_are_refused(curves: Curves, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="against maps"):
        curves(mean_value, images(), torch.zeros(shape), protocol=PROTOCOL)
    with pytest.raises(ValueError, match="against maps"):
        explained_images(images(), torch.zeros(shape), keep=0.5)


def test_images_of_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="uint8"):
        explained_images(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.zeros(1, 2, 2), keep=0.5)


def test_area_of_known_curves() -> None:
    curves = torch.tensor([[0.3, 0.3, 0.3], [0.0, 0.5, 1.0], [1.0, 0.0, 0.0]])
    assert area_under(curves).tolist() == pytest.approx([0.3, 0.5, 0.25])
    with pytest.raises(ValueError, match=r"\(3, 1\)"):
        area_under(curves[:, :1])


# ── explained images and AD, AI, AG ──────────────────────────────────────────────────────────────────


def test_the_soft_explanation_multiplies() -> None:
    heatmaps = random_maps(N, SIZE, 0)
    assert explained_images(images(), heatmaps, keep=None).equal(images() * heatmaps.unsqueeze(1))
    assert explained_images(images(), heatmaps.double(), keep=None).dtype == torch.float32


@pytest.mark.parametrize("offset", [0.5, -0.5])
def test_the_soft_explanation_wants_a_heatmap(offset: float) -> None:
    with pytest.raises(ValueError, match=r"heatmaps reach from .* in \[0, 1\]"):
        explained_images(images(), random_maps(N, SIZE, 0) + offset, keep=None)


def test_rounding_just_beyond_one_is_clamped() -> None:
    assert explained_images(images(), torch.full((N, *SIZE), 1.0002), keep=None).equal(images())


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.777, 1.0])
@pytest.mark.parametrize("maps", [torch.zeros(N, *SIZE), 9 * random_maps(N, SIZE, 0)], ids=["tied", "raw"])
def test_exactly_the_asked_share_is_kept_and_it_is_the_hottest(keep: float, maps: Tensor) -> None:
    shown = explained_images(images(), maps, keep=keep)
    kept = (shown != 0).all(dim=1)
    assert kept.flatten(1).sum(dim=1).tolist() == [round(keep * PIXELS)] * N
    assert shown.equal(images() * kept.unsqueeze(1))
    if 0 < keep < 1:
        cold, hot = maps.masked_fill(kept, -1).amax(dim=(1, 2)), maps.masked_fill(~kept, 10).amin(dim=(1, 2))
        assert (hot >= cold).all()


@pytest.mark.parametrize("keep", [-0.1, 1.5, 50, float("nan")])
def test_keep_is_a_share(keep: float) -> None:
    with pytest.raises(ValueError, match="share of the pixels"):
        explained_images(images(), random_maps(N, SIZE, 0), keep=keep)


def test_drop_increase_and_gain_by_hand_with_the_ends_guarded() -> None:
    before = torch.tensor([0.8, 0.2, 0.5, 0.0, 0.0, 1.0, 1.0])
    after = torch.tensor([0.6, 0.6, 0.5, 0.0, 0.4, 1.0, 0.9])
    assert average_drop(before, after).tolist() == pytest.approx([25, 0, 0, 0, 0, 0, 10])
    assert average_increase(before, after).tolist() == [0, 100, 0, 0, 100, 0, 0]
    assert average_gain(before, after).tolist() == pytest.approx([0, 50, 0, 0, 40, 0, 0])


@pytest.mark.parametrize("metric", [average_drop, average_increase, average_gain])
def test_what_is_no_probability_is_refused(metric: Callable[[Tensor, Tensor], Tensor]) -> None:
    fine = torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match=r"before reach from 0\.5 to 7"):
        metric(torch.tensor([0.5, 7.0]), fine)
    with pytest.raises(ValueError, match="after of image 1 contain NaN"):
        metric(fine, torch.tensor([0.5, torch.nan]))
    with pytest.raises(ValueError, match=r"\(2,\) and \(1,\)"):
        metric(fine, fine[:1])
    assert metric(fine[:0], fine[:0]).shape == (0,)
    assert metric(fine.half(), fine.half()).dtype == torch.float32


def test_all_ones_but_one_pixel_loses_almost_nothing_and_a_tenth_of_the_pixels_much() -> None:
    score, given, rows = Planted(), images(), torch.arange(N)
    fake = explained_images(given, all_but_one(N, SIZE), keep=None)
    assert average_drop(score(given, rows), score(fake, rows)).mean() < 10
    assert fake.ne(given).any()
    worst = explained_images(given, -score.contribution(given), keep=0.1)
    assert average_drop(score(given, rows), score(worst, rows)).mean() > 50
