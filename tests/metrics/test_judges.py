"""Judges against slow literal code in float64, against captum, and on maps that are known."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from dprotonet.metrics.amounts import infidelity, saco, squares
from dprotonet.metrics.complexity import discrete_entropy, entropy, sparseness
from dprotonet.metrics.controls import all_but_one, random_maps
from dprotonet.metrics.curves import RiseProtocol
from dprotonet.metrics.judges import FAMILIES, GROUPS, asks, columns, described, families, probe
from dprotonet.metrics.measures import Protocol
from dprotonet.metrics.references import mean_colour, noise, towards
from dprotonet.metrics.steadiness import efficient_mprt, max_sensitivity

N, SIZE = 3, (12, 10)
IMAGES = torch.randn(N, 3, *SIZE, dtype=torch.double, generator=torch.Generator().manual_seed(1))
MAPS = random_maps(N, SIZE, 0).double()


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 10 * 8, 4), nn.Softmax(dim=1))
        return nn.Sequential(*layers).double().eval().requires_grad_(False)


NETWORK = network()


def score(images: Tensor, rows: Tensor) -> Tensor:
    found: Tensor = NETWORK(images)[torch.arange(len(rows)), rows % 4]
    return found


def alone(image: Tensor, row: int) -> float:
    return float(score(image.unsqueeze(0), torch.tensor([row])))


# ── amounts ──────────────────────────────────────────────────────────────────────────────────────────


def saco_slowly(row: int, groups: int) -> float:
    """As the paper's algorithm: pairs of groups, one by one."""
    pixels = sorted(
        ((float(MAPS[row, y, x]), y, x) for y in range(SIZE[0]) for x in range(SIZE[1])), reverse=True
    )
    size = len(pixels) // groups
    heat, lost = [], []
    for group in range(groups):
        changed = IMAGES[row].clone()
        for _, y, x in pixels[group * size : (group + 1) * size]:
            changed[:, y, x] = IMAGES[row].mean(dim=(1, 2))
        heat.append(sum(value for value, _, _ in pixels[group * size : (group + 1) * size]))
        lost.append(alone(IMAGES[row], row) - alone(changed, row))
    total = signed = 0.0
    for first in range(groups - 1):
        for second in range(first + 1, groups):
            weight = heat[first] - heat[second]
            if lost[first] < lost[second]:
                weight = -weight
            signed, total = signed + weight, total + abs(weight)
    return signed / total


@pytest.mark.parametrize("groups", [2, 5, 10])
def test_saco_is_that_of_the_paper_pair_by_pair(groups: int) -> None:
    found = saco(score, IMAGES, MAPS, MAPS, groups=groups, batch=4)
    assert found.tolist() == pytest.approx([saco_slowly(row, groups) for row in range(N)], rel=1e-9)
    assert found.abs().max() <= 1


def shown(images: Tensor, rows: Tensor) -> Tensor:
    """A network that adds up what it sees, from left to right ever more."""
    return (images.mean(dim=1) * torch.arange(images.shape[-1], device=images.device)).mean(dim=(1, 2))


def test_amounts_find_the_map_that_is_right_and_the_one_that_is_turned_round() -> None:
    bright = torch.ones(1, 3, 20, 20, dtype=torch.double)
    right = torch.arange(20.0, dtype=torch.double).expand(1, 20, 20)
    assert infidelity(shown, bright, right).item() == pytest.approx(0, abs=1e-12)
    assert infidelity(shown, bright, right * 7).item() == pytest.approx(0, abs=1e-12)  # of any scale
    assert infidelity(shown, bright, right.flip(-1)) > 0.1

    striped = torch.where(torch.arange(20).view(1, 1, -1, 1) % 2 > 0, 2.0, 0.0).double().expand(1, 3, 20, 20)

    def seen(images: Tensor, rows: Tensor) -> Tensor:
        return images[:, :, 1::2, 15:].mean(dim=(1, 2, 3))

    where = torch.zeros(1, 20, 20, dtype=torch.double)
    where[:, 1::2, 15:] = 1
    where += 1e-3 * random_maps(1, (20, 20), 2)
    assert saco(seen, striped, where, where) > 0.9
    assert saco(seen, striped, 1 - where, 1 - where) < -0.9


def test_a_flat_map_has_no_saco() -> None:
    assert saco(score, IMAGES, torch.ones_like(MAPS), torch.ones_like(MAPS)).isnan().all()


def infidelity_slowly(row: int, hidden: Tensor) -> float:
    heat = [float((MAPS[row] * mask).sum()) for mask in hidden]
    lost = [alone(IMAGES[row], row) - alone(IMAGES[row] * ~mask, row) for mask in hidden]
    scale = sum(h * d for h, d in zip(heat, lost, strict=True)) / sum(h * h for h in heat)
    return sum((scale * h - d) ** 2 for h, d in zip(heat, lost, strict=True)) / len(heat)


def test_infidelity_is_that_of_its_formula() -> None:
    found = infidelity(score, IMAGES, MAPS, draws=12, share=0.4, seed=5, batch=5)
    hidden = squares(12, SIZE, share=0.4, seed=5)
    assert found.tolist() == pytest.approx([infidelity_slowly(row, hidden) for row in range(N)], rel=1e-9)


def test_infidelity_is_captums() -> None:
    metrics = pytest.importorskip("captum.metrics", reason="captum is not installed")
    draws, drawn = 9, squares(9, SIZE, share=0.4, seed=3).double()
    for row in range(N):

        def perturbed(shown: Tensor) -> tuple[Tensor, Tensor]:
            hidden = drawn[:, None].repeat(len(shown) // draws, 1, 1, 1)
            return hidden, shown - hidden

        expected = metrics.infidelity(
            lambda shown, row=row: score(IMAGES[row] * shown, torch.full((len(shown),), row)),
            perturbed,
            torch.ones(1, 1, *SIZE, dtype=torch.double),
            MAPS[row][None, None],
            n_perturb_samples=draws,
            normalize=True,
        )
        one = infidelity(
            lambda images, rows, row=row: score(images, rows + row),
            IMAGES[row : row + 1],
            MAPS[row : row + 1],
            draws=draws,
            share=0.4,
            seed=3,
        )
        assert one.item() == pytest.approx(expected.item(), rel=1e-6)


def test_squares_are_squares_within_the_image() -> None:
    found = squares(40, (20, 30), share=0.5, seed=0)
    assert found.shape == (40, 20, 30)
    assert (found.flatten(1).sum(dim=1) == 10 * 15).all()
    assert len({tuple(mask.nonzero()[0].tolist()) for mask in found}) > 10


# ── other references ─────────────────────────────────────────────────────────────────────────────────


def area_slowly(row: int, start: Tensor, end: Tensor, steps: int) -> float:
    order = MAPS[row].flatten().argsort(descending=True).tolist()
    values = []
    for step in range(steps + 1):
        mixed = start.clone()
        for place in order[: step * len(order) // steps]:
            y, x = divmod(place, SIZE[1])
            mixed[:, y, x] = end[:, y, x]
        values.append(alone(mixed, row))
    return sum((one + two) / 2 for one, two in pairwise(values)) / steps


@pytest.mark.parametrize("reference", ["mean", "noise", "image"])
def test_deletion_and_insertion_go_to_and_from_the_reference(reference: str) -> None:
    shown = {"mean": mean_colour(IMAGES), "noise": noise(IMAGES, seed=4), "image": IMAGES.roll(1, dims=0)}
    other = shown[reference]
    found = towards(score, IMAGES, other, MAPS, protocol=RiseProtocol(steps=6, batch=5))
    for row in range(N):
        assert found.deletion[row].item() == pytest.approx(area_slowly(row, IMAGES[row], other[row], 6))
        assert found.insertion[row].item() == pytest.approx(area_slowly(row, other[row], IMAGES[row], 6))


def test_noise_has_the_mean_and_spread_of_its_image_and_is_drawn_once() -> None:
    large = 3 + 2 * torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    drawn = noise(large)
    assert drawn.mean().item() == pytest.approx(3, abs=0.1)
    assert drawn.std().item() == pytest.approx(2, abs=0.1)
    assert torch.allclose(noise(large[1:]), drawn[1:])


def test_a_reference_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="one for each image"):
        towards(score, IMAGES, IMAGES[:1], MAPS, protocol=RiseProtocol())


# ── simple, steady, of the network ───────────────────────────────────────────────────────────────────


def test_complexity_is_that_of_its_formulas() -> None:
    for row, (found, gini) in enumerate(zip(entropy(MAPS), sparseness(MAPS), strict=True)):
        heat = sorted(MAPS[row].flatten().tolist())
        total, count = sum(heat), len(heat)
        assert found.item() == pytest.approx(-sum(h / total * math.log(h / total) for h in heat))
        expected = sum((2 * place - count - 1) * h for place, h in enumerate(heat, start=1)) / (count * total)
        assert gini.item() == pytest.approx(expected)


def test_the_ends_of_complexity() -> None:
    flat, point, none = torch.ones(1, 8, 8), torch.zeros(1, 8, 8), torch.zeros(1, 8, 8)
    point[0, 3, 3] = 1
    assert entropy(flat).item() == pytest.approx(math.log(64))
    assert sparseness(flat).item() == pytest.approx(0)
    assert entropy(point).item() == pytest.approx(0)
    assert sparseness(point).item() == pytest.approx(63 / 64)
    assert entropy(none).isnan().all()


def test_discrete_entropy_is_that_of_a_histogram() -> None:
    scipy = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    for row, found in enumerate(discrete_entropy(MAPS, bins=20)):
        values = MAPS[row].numpy()
        counts, _ = __import__("numpy").histogram(values, bins=20)
        assert found.item() == pytest.approx(scipy.entropy(counts), rel=1e-6)


def test_efficient_mprt_rises_where_order_is_lost() -> None:
    ordered = torch.zeros(2, 10, 10)
    ordered[:, :2, :2] = torch.tensor([1.0, 0.5]).view(2, 1, 1)
    ordered[:, 5, 5] = 0.3
    lost = random_maps(2, (10, 10), 0)
    assert (efficient_mprt(ordered, lost) > 1).all()
    assert efficient_mprt(ordered, ordered).tolist() == [0, 0]
    assert efficient_mprt(torch.ones(1, 10, 10), lost[:1]).isnan().all()


def gradient_maps(images: Tensor) -> Tensor:
    leaf = images.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        value = score(leaf, torch.arange(len(leaf)) % N).sum()
    (gradient,) = torch.autograd.grad(value, leaf)
    return gradient.abs().sum(dim=1)


def test_max_sensitivity_is_that_of_captum_for_the_same_disturbances() -> None:
    metrics = pytest.importorskip("captum.metrics", reason="captum is not installed")
    generator = torch.Generator().manual_seed(7)
    drawn = [0.05 * (2 * torch.rand(3, *SIZE, generator=generator) - 1).double() for _ in range(4)]
    maps = gradient_maps(IMAGES[:1])
    found = max_sensitivity(gradient_maps, IMAGES[:1], maps, draws=4, radius=0.05, seed=7)

    def alone_of(given: Tensor | tuple[Tensor]) -> Tensor:
        return given[0] if isinstance(given, tuple) else given

    def disturbed(given: Tensor, _radius: float) -> Tensor:
        return alone_of(given) + torch.stack(drawn)

    def explained(given: Tensor) -> tuple[Tensor]:
        return (torch.cat([gradient_maps(image.unsqueeze(0)) for image in alone_of(given)]).unsqueeze(1),)

    expected = metrics.sensitivity_max(
        explained, IMAGES[:1], perturb_func=disturbed, n_perturb_samples=4, perturb_radius=0.05
    )
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_map_that_never_moves_is_steady_and_one_that_jumps_is_not() -> None:
    assert max_sensitivity(lambda images: MAPS, IMAGES, MAPS, draws=2).tolist() == [0, 0, 0]
    assert max_sensitivity(lambda images: 0 * MAPS, IMAGES, MAPS, draws=1).tolist() == pytest.approx(
        [1, 1, 1]
    )
    assert max_sensitivity(lambda images: MAPS, IMAGES, 0 * MAPS, draws=1).isnan().all()


# ── the table ────────────────────────────────────────────────────────────────────────────────────────


def test_every_column_asks_something_and_has_a_name_of_its_own() -> None:
    every = Protocol(judges=tuple(FAMILIES)).measures
    names = [measure.name for measure in every]
    assert len(set(names)) == len(names)
    assert {asks(name) for name in names} == set(GROUPS)
    assert asks("AD50") == asks("AI25") == "what it keeps"
    assert {name: probe(name) for name in names if probe(name)} == {
        **dict.fromkeys(("AD", "AI", "AG", "AD50", "AI50"), "keep black"),
        **{"deletion": "hide black", "insertion": "keep blur", "infidelity": "hide black"},
    }
    assert [measure.name for measure in columns(("road",))] == ["ROAD hot", "ROAD cold", "ROAD"]
    assert all(f"{name} (" in described() for name in FAMILIES)


def test_families_come_in_the_order_of_the_table() -> None:
    assert families(["saco", "road"]) == ("road", "saco")
    assert families(["all"]) == tuple(FAMILIES)
    assert families([]) == ()
    with pytest.raises(ValueError, match="unknown judge 'roda'; known: road, references"):
        families(["roda"])


def test_without_judges_a_protocol_is_what_it_was() -> None:
    assert "judges" not in Protocol().facts
    assert Protocol(judges=("saco",)).facts["judges"] == "saco"
    assert Protocol(judges=("saco",)).measures[:-1] == Protocol().measures


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: saco(score, IMAGES, MAPS, MAPS, groups=1),
        lambda: infidelity(score, IMAGES, MAPS, draws=0),
        lambda: infidelity(score, IMAGES, MAPS, share=1.0),
        lambda: max_sensitivity(gradient_maps, IMAGES, MAPS, draws=0),
        lambda: entropy(-all_but_one(1, SIZE)),
    ],
)
def test_what_is_impossible_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"groups|draws|share|heat"):
        wrong()  # type: ignore[operator]
