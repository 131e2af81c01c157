"""Explainers made of many passes against their definitions: slow and literal, or another package's code."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.errors import UserError
from dprotonet.interpretation.cam import CAM
from dprotonet.interpretation.extremal import Extremal, smooth_largest, templates
from dprotonet.interpretation.gradients import IntegratedGradients, SmoothGrad
from dprotonet.interpretation.hidden_parts import KernelShap, Lime, Occlusion, fitted
from dprotonet.interpretation.nodes import CallableNode
from dprotonet.interpretation.superpixels import superpixels

SIZE = (12, 10)
IMAGES = torch.randn(2, 3, *SIZE, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """Small, not linear, with biases."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Softplus())
            self.layers.append(nn.Conv2d(6, 4, 3, padding=1))
            self.head = nn.Linear(4, 3)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.head(self.layers(images).relu().mean(dim=(2, 3)))
        return found


NET = Net()


def logit(image: Tensor, label: int = 1) -> float:
    with torch.no_grad():
        return float(NET(image.unsqueeze(0))[0, label])


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────


def test_integrated_gradients_add_up_to_the_rise_from_blank() -> None:
    for row, found in enumerate(IntegratedGradients(NET, samples=400).explain(IMAGES, 1)):
        rise = logit(IMAGES[row]) - logit(torch.zeros_like(IMAGES[row]))
        assert found.raw.sum().item() == pytest.approx(rise, abs=1e-3)


def test_integrated_gradients_are_captums() -> None:
    reference = pytest.importorskip("captum.attr", reason="captum is not installed")
    method = reference.IntegratedGradients(NET)
    expected = method.attribute(IMAGES, target=1, n_steps=20, method="riemann_middle").sum(dim=1)
    found = torch.stack([one.raw for one in IntegratedGradients(NET, samples=20).explain(IMAGES, 1)])
    assert torch.allclose(found, expected.float(), atol=1e-6)


def test_without_noise_smoothgrad_is_input_times_gradient() -> None:
    leaf = IMAGES.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(NET(leaf)[:, 1].sum(), leaf)
    found = torch.stack([one.raw for one in SmoothGrad(NET, samples=3, noise=0).explain(IMAGES, 1)])
    assert torch.allclose(found, (IMAGES * gradient).sum(dim=1), atol=1e-6)


def test_smoothgrad_averages_gradients_at_noisy_images() -> None:
    by = SmoothGrad(NET, samples=4, noise=0.3, seed=2)
    noisy = by.varied(IMAGES[0], torch.arange(4)).requires_grad_(True)
    (gradient,) = torch.autograd.grad(NET(noisy)[:, 1].sum(), noisy)
    (found,) = by.explain(IMAGES[:1], 1)
    assert torch.allclose(found.raw, (IMAGES[0] * gradient.mean(dim=0)).sum(dim=0), atol=1e-6)
    spread = (noisy.detach() - IMAGES[0]).std() / (IMAGES[0].max() - IMAGES[0].min())
    assert spread.item() == pytest.approx(0.3, rel=0.1)


# ── hidden parts ─────────────────────────────────────────────────────────────────────────────────────


def test_occlusion_is_the_mean_fall_over_the_windows_that_hide_a_pixel() -> None:
    (found,) = Occlusion(NET, windows=3, share=0.5).explain(IMAGES[:1], 1)
    total, count = torch.zeros(SIZE), torch.zeros(SIZE)
    for top, left in itertools.product((0, 3, 6), (0, 2, 5)):  # windows of 6 × 5
        hidden = IMAGES[0].clone()
        hidden[:, top : top + 6, left : left + 5] = 0
        total[top : top + 6, left : left + 5] += logit(IMAGES[0]) - logit(hidden)
        count[top : top + 6, left : left + 5] += 1
    assert torch.allclose(found.raw, total / count, atol=1e-5)


def quadrants(image: Tensor) -> Tensor:
    """An image whose four quarters are its superpixels."""
    quarters = torch.zeros(3, *SIZE)
    for number, (top, left) in enumerate(itertools.product((0, 6), (0, 5))):
        quarters[:, top : top + 6, left : left + 5] = image[:, number, number].view(3, 1, 1) + 0.1
    return quarters


def test_shapley_values_are_exact_where_all_combinations_are_asked() -> None:
    image = quadrants(IMAGES[0])
    parts = superpixels(image, grid=2)
    count = int(parts.max()) + 1
    assert count == 4

    def worth(kept: tuple[int, ...]) -> float:
        return logit(image * torch.isin(parts, torch.tensor(kept, dtype=torch.long)))

    expected = []
    for part in range(count):
        others = [other for other in range(count) if other != part]
        value = 0.0
        for size in range(count):
            share = 1 / (count * math.comb(count - 1, size))
            for some in itertools.combinations(others, size):
                value += share * (worth((*some, part)) - worth(some))
        expected.append(value)
    (found,) = KernelShap(NET, samples=16, grid=2).explain(image.unsqueeze(0), 1)
    assert [found.raw[parts == part].mean().item() for part in range(count)] == pytest.approx(
        expected, abs=1e-5
    )


def test_drawn_shapley_values_add_up_and_are_near_the_exact_ones() -> None:
    image = torch.rand(3, 12, 12, generator=torch.Generator().manual_seed(3)) + 0.2
    parts = superpixels(image, grid=3)
    assert 2 ** (int(parts.max()) + 1) <= 512
    (exact,) = KernelShap(NET, samples=512, grid=3).explain(image[None], 1)
    (drawn,) = KernelShap(NET, samples=300, grid=3, seed=4).explain(image[None], 1)
    rise = logit(image) - logit(torch.zeros_like(image))
    for found in (exact, drawn):
        each = [found.raw[parts == part].mean().item() for part in range(int(parts.max()) + 1)]
        assert sum(each) == pytest.approx(rise, abs=1e-4)
    assert (exact.raw - drawn.raw).abs().max() < 0.1 * exact.raw.abs().max()


def test_lime_is_a_weighted_ridge_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    by = Lime(NET, samples=50, grid=3)
    kept = by.kept(7)
    assert kept[0].all()
    scores = torch.randn(50, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    weight = []
    for row in kept.double():
        distance = 1 - float(row.sum()) / (math.sqrt(float(row.sum())) * math.sqrt(7)) if row.any() else 1.0
        weight.append(math.sqrt(math.exp(-(distance**2) / 0.25**2)))
    ridge = linear_model.Ridge(alpha=1.0).fit(kept.double().numpy(), scores.numpy(), sample_weight=weight)
    assert by.worth(kept.double(), scores).tolist() == pytest.approx(ridge.coef_.tolist(), rel=1e-6)
    plain = fitted(kept.double(), scores, torch.ones(50, dtype=torch.double), penalty=2.0)
    other = linear_model.Ridge(alpha=2.0).fit(kept.double().numpy(), scores.numpy())
    assert plain.tolist() == pytest.approx(other.coef_.tolist(), rel=1e-6)


def test_a_network_that_looks_at_nothing_has_a_flat_map() -> None:
    nothing = CallableNode(lambda images: images.flatten(1).mean(dim=1) * 0 + 3)
    for by in (Occlusion(), Lime(samples=20, grid=3), KernelShap(samples=20, grid=3)):
        (found,) = by.explain(IMAGES[:1], nothing)
        assert not found.raw.any() or found.raw.std() < 1e-6


# ── superpixels ──────────────────────────────────────────────────────────────────────────────────────


def test_superpixels_follow_colours() -> None:
    image = torch.zeros(3, 40, 40)
    image[0, :, 23:] = 1.0  # an edge that no cell of a grid of 4 has
    parts = superpixels(image, grid=4)
    assert not set(parts[:, :23].unique().tolist()) & set(parts[:, 23:].unique().tolist())


@pytest.mark.parametrize("size", [(40, 30), (7, 50), (3, 3), (1, 1)])
def test_superpixels_cover_the_image_and_are_numbered_without_gaps(size: tuple[int, int]) -> None:
    parts = superpixels(torch.rand(3, *size, generator=torch.Generator().manual_seed(0)), grid=5)
    assert parts.shape == size
    assert parts.unique().tolist() == list(range(int(parts.max()) + 1))
    assert int(parts.max()) < 25


def test_superpixels_of_one_colour_are_a_grid_and_the_scale_of_colours_does_not_matter() -> None:
    flat = superpixels(torch.ones(3, 20, 20), grid=4)
    assert torch.equal(flat, torch.arange(16).view(4, 4).repeat_interleave(5, 0).repeat_interleave(5, 1))
    image = torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(superpixels(image, grid=4), superpixels(image * 9, grid=4))


# ── extremal perturbation ────────────────────────────────────────────────────────────────────────────


def test_the_template_of_an_area_is_zeros_and_then_ones() -> None:
    assert templates((0.25, 0.5), 8).tolist() == [[0] * 6 + [1] * 2, [0] * 4 + [1] * 4]


def test_the_smooth_largest_is_that_of_its_formula() -> None:
    values = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(0))
    found, reach, spread = smooth_largest(values, 1.5)[0], 3, 1.5
    for y, x in itertools.product(range(6), range(6)):
        felt = []
        for down, along in itertools.product(range(-reach, reach + 1), repeat=2):
            inside = 0 <= y + down < 6 and 0 <= x + along < 6
            distance = math.hypot(down, along) / spread
            bell = math.exp(-2 * max(0.0, distance - 0.5) ** 2)
            felt.append(bell * float(values[0, y + down, x + along]) if inside else 0.0)
        weight = [math.exp(20 * value) for value in felt]
        expected = sum(w * value for w, value in zip(weight, felt, strict=True)) / sum(weight)
        assert found[y, x].item() == pytest.approx(expected, rel=1e-4)


def test_an_area_is_filled_and_lies_where_the_node_looks() -> None:
    def corner(images: Tensor) -> Tensor:
        return images[:, :, :16, :16].mean(dim=(1, 2, 3))

    (found,) = Extremal(areas=(0.25,), steps=150).explain(torch.ones(1, 3, 32, 32), CallableNode(corner))
    assert 0.2 < found.raw.mean() < 0.32
    inside = torch.zeros(32, 32, dtype=torch.bool)
    inside[:16, :16] = True
    assert found.raw[inside].mean() > 0.75
    assert found.raw[~inside].mean() < 0.2


# ── Full-Grad, refusals ──────────────────────────────────────────────────────────────────────────────


def test_full_grad_is_pytorch_grad_cams() -> None:
    pytest.importorskip("pytorch_grad_cam", reason="grad-cam is not installed")
    package = import_guarded("pytorch_grad_cam")
    target = import_guarded("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget(1)
    with package.FullGrad(Net(), []) as reference:
        expected = reference(IMAGES[:1], [target])
    (found,) = CAM(Net(), "fullgrad").explain(IMAGES[:1], 1)
    assert np.allclose(found.raw.numpy(), expected[0], atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: IntegratedGradients(NET, samples=0), "with 0 samples"),
        (lambda: SmoothGrad(NET, noise=-1), "noise -1"),
        (lambda: Occlusion(NET, windows=1), "1 windows"),
        (lambda: Occlusion(NET, windows=4, share=0.1), "wide enough to cover"),
        (lambda: Lime(NET, samples=1), "1 samples"),
        (lambda: KernelShap(NET, grid=1), "grid 1"),
        (lambda: Extremal(NET, areas=()), "areas"),
        (lambda: Extremal(NET, areas=(0.0,)), "areas"),
    ],
)
def test_impossible_settings_are_refused(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        wrong()


@pytest.mark.parametrize("kind", [IntegratedGradients, SmoothGrad, Extremal])
def test_a_node_without_gradient_is_said(kind: Callable[[], IntegratedGradients]) -> None:
    blocked = CallableNode(lambda images: images.detach().mean(dim=(1, 2, 3)))
    with pytest.raises(UserError, match="has no gradient; explain it by occlusion or by RISE"):
        kind().explain(IMAGES[:1], blocked)
