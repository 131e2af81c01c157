"""The MDM decoder once more, slow and literal: one size, one image, one number at a time, in float64.

Algorithm 1 with Eqs. (12)-(17) against the `paper` preset, which learns all sizes of all images at once; and
the small parts of the `fast` preset against what their docstrings say.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dprotonet.figures.overlay import heat
from dprotonet.inference.nearest import nearest_regions
from dprotonet.interpretation.algorithm1 import Algorithm1
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.kept_activation import KeptActivation
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.masks import MaskStack
from dprotonet.interpretation.mdm import MDM
from dprotonet.interpretation.nodes import CallableNode, ClassNode, Node, RegionNode
from dprotonet.interpretation.ranked_masks import blurred, hottest
from dprotonet.interpretation.shared_descent import SharedDescent

IMAGES, HEIGHT, WIDTH, CLASSES, DIMENSION = 3, 16, 20, 4, 5
SIZES, ITERATIONS, TAU, ETA, RATE = (3, 4, 6), 30, 0.5, 0.4, 0.02
TOLERANCE = 1e-4
PRESET = Algorithm1(
    sizes=SIZES, iterations=ITERATIONS, start=TAU, sparsity=ETA, reference=None, threshold=0.45, rate=RATE
)
REFERENCE = 0.7
RELATIVE = replace(PRESET, reference=REFERENCE)
GAMMA = 0.45 * len(SIZES)
Activation = Callable[[Tensor], Tensor]


class Smooth(nn.Module):
    """Region vectors (B, R, D) and logits of a network without kinks; rounding hardly moves its gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Conv2d(2, 6, 4, stride=4), nn.Conv2d(6, DIMENSION, 1)
        self.head = nn.Linear(DIMENSION, CLASSES)
        self.double()

    def regions(self, images: Tensor) -> Tensor:
        vectors: Tensor = self.second(torch.tanh(2 * self.first(images))).flatten(2).transpose(1, 2)
        return 2 * vectors

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.regions(images).mean(dim=1))
        return 4 * logits


MODEL = Smooth().eval()


def random(*shape: int, seed: int) -> Tensor:
    """Float64 values that float32 holds exactly."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


PICTURES, PROTOTYPES = random(IMAGES, 2, HEIGHT, WIDTH, seed=0), random(IMAGES, DIMENSION, seed=1)


# ── the literal formulas ─────────────────────────────────────────────────────────────────────────────


def share_of(place: int, cell: int, cells: int, places: int) -> float:
    """How much a pixel takes from a mask value along one axis: bilinear, by pixel centres."""
    centre = min(max((place + 0.5) * cells / places - 0.5, 0), cells - 1)
    return max(0.0, 1 - abs(centre - cell))


def axis(cells: int, places: int) -> Tensor:
    rows = [[share_of(place, cell, cells, places) for cell in range(cells)] for place in range(places)]
    return torch.tensor(rows, dtype=torch.double)


def g(d: Tensor) -> Tensor:  # the upsampling function, (a, b) to (H, W)
    return axis(d.shape[0], HEIGHT) @ d @ axis(d.shape[1], WIDTH).T


def squared(first: Tensor, second: Tensor) -> Tensor:  # Eq. (1)
    return sum(((first[k] - second[k]) ** 2 for k in range(len(first))), torch.zeros(()).double())


def argmin_region(vectors: Tensor, prototype: Tensor) -> int:  # Eqs. (12) and (13)
    return min(range(len(vectors)), key=lambda j: math.sqrt(squared(vectors[j], prototype).item()))


def algorithm_1(x: Tensor, f: Activation, kept: Tensor, reference: float | None = None) -> list[Tensor]:
    """The mask vectors of one image, one size after the other; relative to a blank image if asked for."""
    vectors = []
    unit = 1.0 if reference is None else reference / squared(f(0 * x), kept).item()
    for a in SIZES:
        d = torch.full((a, a), TAU, dtype=torch.double, requires_grad=True)
        adam = torch.optim.Adam([d], lr=RATE)
        for _ in range(ITERATIONS):
            consistency = squared(f(g(d) * x), kept)  # Eqs. (14) and (15)
            area = sum((d[u, v].abs() for u in range(a) for v in range(a)), torch.zeros(()).double())
            adam.zero_grad()
            (unit * consistency + ETA * area / (a * a)).backward()
            adam.step()
            with torch.no_grad():
                d.clamp_(0, 1)
        vectors.append(d.detach())
    return vectors


def heatmap(vectors: list[Tensor]) -> Tensor:  # Eqs. (16) and (17)
    total = sum((g(d) for d in vectors), torch.zeros(HEIGHT, WIDTH).double())
    kept = torch.tensor([[value if value >= GAMMA else 0.0 for value in row] for row in total.tolist()])
    return (kept - kept.min()) / (kept.max() - kept.min())


def assert_literal(found: Explanation, literal: list[Tensor]) -> None:
    """Masks and raw map within the tolerance; the heatmap too, but where the threshold hangs on rounding."""
    for size, vector in zip(SIZES, literal, strict=True):
        assert (found.masks[size].double() - vector).abs().max() <= TOLERANCE
        assert vector.max() - vector.min() > 0.1
    raw = sum((g(d) for d in literal), torch.zeros(HEIGHT, WIDTH).double())
    assert (found.raw.double() - raw).abs().max() <= TOLERANCE
    sure = (raw - GAMMA).abs() > TOLERANCE
    assert sure.double().mean() > 0.95
    assert (found.heatmap - heatmap(literal))[sure].abs().max() <= 10 * TOLERANCE
    assert 0 < (found.heatmap == 0).double().mean() < 0.9


# ── the paper's decoder ──────────────────────────────────────────────────────────────────────────────


def explained(node: Node, batch: int = 7, by: Algorithm1 = PRESET) -> list[Explanation]:
    return MDM(preset=by, internal_batch_size=batch).explain(PICTURES.float(), node)


def test_masks_are_enlarged_by_pixel_centres() -> None:
    for size in SIZES:
        vector = random(1, size, size, seed=size)
        enlarged = MaskStack({size: vector}).enlarged((HEIGHT, WIDTH)).detach()
        torch.testing.assert_close(enlarged[0, 0], g(vector[0]))


def test_equations_12_and_13_the_nearest_region() -> None:
    vectors = MODEL.regions(PICTURES)
    literal = [argmin_region(vectors[n], PROTOTYPES[n]) for n in range(IMAGES)]
    assert len(set(literal)) > 1
    for batch in (1, 2, 32):
        assert found_regions(batch).tolist() == literal


def found_regions(batch: int = 32) -> Tensor:
    """The region of each image that is nearest to its prototype, by the search that networks decide by."""
    blocks = zip(PICTURES.split(batch), PROTOTYPES.split(batch), strict=True)
    return torch.cat([nearest_regions(MODEL.regions(x), p).region.diagonal() for x, p in blocks])


@pytest.fixture(scope="module")
def in_image() -> list[list[Tensor]]:
    """Eq. (14): the mask vectors that keep the region's own vector."""
    literal = []
    for x, p in zip(PICTURES, PROTOTYPES, strict=True):
        region = argmin_region(MODEL.regions(x[None])[0], p)
        kept = MODEL.regions(x[None])[0, region].detach()
        literal.append(algorithm_1(x, lambda masked, j=region: MODEL.regions(masked[None])[0, j], kept))
    return literal


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_equation_14_a_prototype_in_an_image(batch: int, in_image: list[list[Tensor]]) -> None:
    node = RegionNode(MODEL.regions, found_regions(), model=MODEL)
    for found, literal in zip(explained(node, batch), in_image, strict=True):
        assert_literal(found, literal)


def test_equation_15_a_prototype_in_its_source_keeps_the_prototype_itself(
    in_image: list[list[Tensor]],
) -> None:
    node = RegionNode(MODEL.regions, found_regions(), target=PROTOTYPES, model=MODEL)
    for row, found in enumerate(explained(node)):
        x, p = PICTURES[row], PROTOTYPES[row]
        region = argmin_region(MODEL.regions(x[None])[0], p)
        literal = algorithm_1(x, lambda masked, j=region: MODEL.regions(masked[None])[0, j], p)
        for size, vector in zip(SIZES, literal, strict=True):
            assert (found.masks[size].double() - vector).abs().max() <= TOLERANCE
        other = max((a - b).abs().max() for a, b in zip(literal, in_image[row], strict=True))
        assert other > 0.05  # than the region's own vector


def test_algorithm_1_a_class_of_any_network() -> None:
    labels = [2, 0, 3]
    node = ClassNode(MODEL, labels, probability=False)
    for x, label, found in zip(PICTURES, labels, explained(node), strict=True):
        kept = MODEL(x[None])[0, label : label + 1].detach()
        literal = algorithm_1(x, lambda masked, c=label: MODEL(masked[None])[0, c : c + 1], kept)
        for size, vector in zip(SIZES, literal, strict=True):
            assert (found.masks[size].double() - vector).abs().max() <= TOLERANCE


def test_relative_to_a_blank_image_a_prototype_in_an_image_and_in_its_source() -> None:
    for node in (
        RegionNode(MODEL.regions, found_regions(), model=MODEL),
        RegionNode(MODEL.regions, found_regions(), target=PROTOTYPES, model=MODEL),
    ):
        found = explained(node, by=RELATIVE)
        for row, (x, p) in enumerate(zip(PICTURES, PROTOTYPES, strict=True)):
            vectors = MODEL.regions(x[None])[0].detach()
            region = argmin_region(vectors, p)
            kept = vectors[region] if node.target(torch.tensor([row])) is None else p
            literal = algorithm_1(
                x, lambda masked, j=region: MODEL.regions(masked[None])[0, j], kept, REFERENCE
            )
            for size, vector in zip(SIZES, literal, strict=True):
                assert (found[row].masks[size].double() - vector).abs().max() <= TOLERANCE
            assert (found[row].masks[SIZES[0]] - explained(node)[row].masks[SIZES[0]]).abs().max() > 0.02


def test_relative_to_a_blank_image_a_class() -> None:
    labels = [2, 0, 3]
    node = ClassNode(MODEL, labels, probability=False)
    for x, label, found in zip(PICTURES, labels, explained(node, by=RELATIVE), strict=True):
        kept = MODEL(x[None])[0, label : label + 1].detach()

        def logit(masked: Tensor, c: int = label) -> Tensor:
            return MODEL(masked[None])[0, c : c + 1]

        literal = algorithm_1(x, logit, kept, REFERENCE)
        for size, vector in zip(SIZES, literal, strict=True):
            assert (found.masks[size].double() - vector).abs().max() <= TOLERANCE
        unit = REFERENCE / squared(logit(0 * x), kept).item()
        first = len(SIZES) * (unit * squared(logit(TAU * x), kept).item() + ETA * TAU)
        assert found.loss[0] == pytest.approx(first, rel=1e-4)
        assert found.passes == (PRESET.passes + 2, PRESET.passes)  # the image and the blank one, once each


def test_algorithm_1_returns_four_things() -> None:
    """Lines 17 to 21, number by number: M^b, M^h, the heatmap image and the binary-mask image."""
    node = RegionNode(MODEL.regions, found_regions(), model=MODEL)
    x0 = torch.randint(0, 256, (3, HEIGHT, WIDTH), generator=torch.Generator().manual_seed(5)).byte()
    for found in explained(node):
        binary, blend = np.asarray(found.binary_image(x0)), np.asarray(found.heatmap_image(x0))
        soft, colours = np.asarray(found.masked(x0)), 255 * heat(found.heatmap)
        for u, v, c in itertools.product(range(HEIGHT), range(WIDTH), range(3)):
            kept = found.raw[u, v].item() >= GAMMA
            assert found.binary_mask[u, v].item() == kept
            assert binary[u, v, c] == (x0[c, u, v].item() if kept else 0)
            assert soft[u, v, c] == pytest.approx(x0[c, u, v].item() * found.heatmap[u, v].item(), abs=0.51)
            literal = 0.5 * x0[c, u, v].item() + 0.3 * colours[c, u, v].item()
            assert blend[u, v, c] == pytest.approx(literal, abs=0.51)
        assert found.binary_mask.dtype == torch.bool
        assert not np.array_equal(binary, soft)  # Eq. (19) is another picture


def test_the_loss_is_that_of_all_sizes() -> None:
    node = ClassNode(MODEL, [2, 0, 3], probability=False)
    for x, label, found in zip(PICTURES, [2, 0, 3], explained(node), strict=True):
        gap = squared(MODEL(TAU * x[None])[0, label : label + 1], MODEL(x[None])[0, label : label + 1])
        first = len(SIZES) * (gap.item() + ETA * TAU)  # all masks are flat at first
        assert found.loss[0] == pytest.approx(first, rel=1e-4)
        assert len(found.loss) == ITERATIONS
        assert found.passes.forward == PRESET.passes + 1
        assert found.passes.backward == PRESET.passes


def test_the_numbers_are_the_papers() -> None:
    paper = Algorithm1()
    assert paper.sizes == tuple(5 + i for i in range(1, 11))
    assert (paper.start, paper.sparsity, paper.iterations) == (0.5, 10, 800)
    assert paper.reference == 1000  # not the paper's: None would be
    assert paper.threshold * len(paper.sizes) == pytest.approx(3)


# ── the parts of the fast preset ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.95, 0.999])
def test_the_hottest_share_is_chosen_softly(share: float) -> None:
    masks, softness = random(2, 6, 7, seed=4).sigmoid(), 0.07
    found = hottest(masks, share, softness)
    for n in range(2):
        ranked = sorted(masks[n].flatten().tolist())
        hidden = max(1, round((1 - share) * len(ranked)))
        for u, v in itertools.product(range(6), range(7)):
            literal = 1 / (1 + math.exp(-(masks[n, u, v].item() - ranked[hidden - 1]) / softness))
            assert found[n, u, v].item() == pytest.approx(literal)
        assert (found[n] > 0.5).sum() == len(ranked) - hidden


def test_the_choice_has_the_gradient_of_each_place_alone() -> None:
    masks = random(1, 4, 4, seed=5).requires_grad_()
    chosen = hottest(masks, 0.4, 0.2)
    (gradient,) = torch.autograd.grad(chosen.sum(), masks)
    torch.testing.assert_close(gradient, (chosen * (1 - chosen) / 0.2).detach())


def test_the_blur_is_a_gaussian_over_repeated_borders() -> None:
    images, kernel, sigma = random(2, 3, 7, 9, seed=6), 11, 5.0
    reach = range(-(kernel // 2), kernel // 2 + 1)
    weight = {(i, j): math.exp(-(i * i + j * j) / (2 * sigma**2)) for i in reach for j in reach}
    total, found = sum(weight.values()), blurred(images)
    assert found.shape == images.shape
    for n, c, u, v in itertools.product(range(2), range(3), range(7), range(9)):
        literal = sum(
            value * images[n, c, min(max(u + i, 0), 6), min(max(v + j, 0), 8)].item()
            for (i, j), value in weight.items()
        )
        assert found[n, c, u, v].item() == pytest.approx(literal / total)


def test_shared_descent_is_adam_with_one_length_a_mask() -> None:
    rate, decay, steps = 0.05, 0.9, 5
    start, slopes = random(2, 3, 3, seed=7), random(steps, 2, 3, 3, seed=8)
    speed = random(2, 3, 3, seed=11).sigmoid()
    mask = start.clone().requires_grad_()
    descent = SharedDescent([mask], rate=rate, decay=decay, speeds=[speed])
    for slope in slopes:
        mask.grad = slope.clone()
        descent.step()
        assert mask.grad is None

    for n in range(2):
        values, mean, square = start[n].clone(), torch.zeros(3, 3).double(), 0.0
        for t, slope in enumerate(slopes[:, n], start=1):
            mean = decay * mean + (1 - decay) * slope
            square = decay * square + (1 - decay) * sum(v * v for v in slope.flatten().tolist()) / 9
            length = math.sqrt(square / (1 - decay**t))
            for u, v in itertools.product(range(3), range(3)):
                values[u, v] -= rate * speed[n, u, v] * (mean[u, v] / (1 - decay**t)) / length
        torch.testing.assert_close(mask[n].detach(), values)


def test_places_without_influence_stay_where_they_were() -> None:
    mask = random(1, 3, 3, seed=7).requires_grad_()
    start, speeds = mask.detach().clone(), [torch.ones(1, 3, 3).double()]
    descent = SharedDescent([mask], rate=0.05, speeds=speeds)
    for _ in range(3):
        mask.grad = torch.zeros(1, 3, 3).double()
        mask.grad[0, 1, 2] = -1e-9
        descent.step()
    moved = (mask.detach() != start)[0]
    assert moved[1, 2]
    assert moved.sum() == 1
    still = SharedDescent([mask], rate=0.05, speeds=speeds)
    mask.grad, before = torch.zeros(1, 3, 3).double(), mask.detach().clone()
    still.step()
    assert torch.equal(mask.detach(), before)


@pytest.mark.parametrize("components", [1, 3])
def test_a_share_is_one_for_the_image_and_zero_for_nothing(components: int) -> None:
    weight = random(components, 2 * HEIGHT * WIDTH, seed=9).float()
    node = CallableNode(lambda images: images.flatten(1) @ weight.T + 3)
    task = MaskingTask(PICTURES.float(), node, batch=2)
    share, others = KeptActivation.of(task), random(IMAGES, components, seed=10).float()
    assert task.passes == (2, 0)
    wanted = PICTURES.float().flatten(1) @ weight.T + 3
    found = share(others, task.rows)
    for n in range(IMAGES):
        if components == 1:
            literal = (others[n, 0] - 3) / (wanted[n, 0] - 3)
        else:
            literal = 1 - squared(others[n], wanted[n]) / squared(wanted[n], torch.full((components,), 3.0))
        assert found[n].item() == pytest.approx(literal.item(), rel=1e-4)
    torch.testing.assert_close(share(wanted, task.rows), torch.ones(IMAGES))
    blank = share(torch.full((IMAGES, components), 3.0), task.rows)
    torch.testing.assert_close(blank, torch.zeros(IMAGES), atol=1e-5, rtol=0)
