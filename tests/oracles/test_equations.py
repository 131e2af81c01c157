"""Equations (1)-(11) once more, slow and literal: float64, one number at a time, against the fast code."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from dprotonet.encoder.regions import Masks, spatial_masks, uniform_masks
from dprotonet.inference.head import Head
from dprotonet.inference.losses import PrototypeLoss, cluster_loss, foreign_weight, separation_distance
from dprotonet.inference.nearest import nearest_regions
from dprotonet.inference.projection import MultiImageMean, SourceSearch
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import CosineSimilarity, LogSimilarity

IMAGES, REGIONS, DIMENSION, CLASSES, PER_CLASS = 3, 5, 4, 3, 2
PROTOTYPES = CLASSES * PER_CLASS
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
EPSILON = 1e-12
CLASS = [j // PER_CLASS for j in range(PROTOTYPES)]
LABELS = [2, 0, 1]


@pytest.fixture(params=list(TOLERANCE), ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    wanted: torch.dtype = request.param
    return wanted


@pytest.fixture
def regions() -> Tensor:
    return random(IMAGES, REGIONS, DIMENSION, seed=1)


@pytest.fixture
def prototypes() -> Tensor:
    return random(PROTOTYPES, DIMENSION, seed=2)


@pytest.fixture
def weight() -> Tensor:
    return random(CLASSES, PROTOTYPES, seed=3)


def random(*shape: int, seed: int) -> Tensor:
    """Float64 values that float32 holds exactly, so that both precisions start from the same numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def assert_near(fast: Tensor, literal: Tensor) -> None:
    """Within the tolerance of the fast result's precision, relative to the largest literal value."""
    error = (fast.double() - literal).abs().max() / literal.abs().max()
    assert error <= TOLERANCE[fast.dtype]


def layer(vectors: Tensor, similarity: torch.nn.Module | None = None) -> Prototypes:
    made = Prototypes(CLASSES, PER_CLASS, DIMENSION, similarity=similarity or LogSimilarity())
    made.vectors.data = vectors
    return made


# ── the literal formulas ─────────────────────────────────────────────────────────────────────────────


def squared_distance(region: Tensor, prototype: Tensor) -> Tensor:  # Eq. (1)
    return sum(((region[d] - prototype[d]) ** 2 for d in range(len(region))), torch.zeros(()).double())


def score(regions: Tensor, prototype: Tensor) -> Tensor:  # Eq. (2), one image
    return max(math_score(squared_distance(region, prototype)) for region in regions)


def math_score(distance: Tensor) -> Tensor:
    return torch.log((distance + 1) / (distance + EPSILON))


def smallest(regions: Tensor, prototypes: Tensor, allowed: list[int]) -> Tensor:
    return min(squared_distance(region, prototypes[j]) for j in allowed for region in regions)


def own(label: int) -> list[int]:
    return [j for j in range(PROTOTYPES) if CLASS[j] == label]


def foreign(label: int) -> list[int]:
    return [j for j in range(PROTOTYPES) if CLASS[j] != label]


def logits(regions: Tensor, prototypes: Tensor, weight: Tensor) -> Tensor:  # Eq. (3), all images
    table = [
        sum((weight[c, j] * score(image, prototypes[j]) for j in range(PROTOTYPES)), torch.zeros(()).double())
        for image, c in product(regions, range(CLASSES))
    ]
    return torch.stack(table).reshape(len(regions), CLASSES)


def clst(regions: Tensor, prototypes: Tensor) -> Tensor:  # Eq. (5)
    pairs = zip(regions, LABELS, strict=True)
    return torch.stack([smallest(image, prototypes, own(label)) for image, label in pairs]).mean()


def sep(regions: Tensor, prototypes: Tensor) -> Tensor:  # Eq. (6)
    pairs = zip(regions, LABELS, strict=True)
    return -torch.stack([smallest(image, prototypes, foreign(label)) for image, label in pairs]).mean()


def sparse(weight: Tensor) -> Tensor:  # Eq. (7)
    return torch.stack([weight[u, v].abs() for u in range(CLASSES) for v in foreign(u)]).sum()


def total(regions: Tensor, prototypes: Tensor, weight: Tensor) -> Tensor:
    """Eq. (4) as meant: λ2 = -0.08 belongs to the distance, that is to -Sep."""
    entropy = torch.zeros(()).double()
    for row, label in zip(logits(regions, prototypes, weight), LABELS, strict=True):
        entropy = entropy - torch.log(torch.exp(row[label]) / torch.exp(row).sum())
    near, far, lasso = clst(regions, prototypes), -sep(regions, prototypes), sparse(weight)
    return entropy / len(LABELS) + 0.8 * near - 0.08 * far + 1e-4 * lasso


# ── values and gradients ─────────────────────────────────────────────────────────────────────────────


def with_gradients(function: object, *inputs: Tensor) -> list[Tensor]:
    """The value, and the gradient of a fixed random mixture of its entries for every input."""
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    value = function(*leaves)  # type: ignore[operator]
    mixture = (value * random(*value.shape, seed=9).to(value.dtype)).sum()
    return [value.detach(), *torch.autograd.grad(mixture, leaves)]


def assert_same(fast: object, literal: object, *inputs: Tensor, dtype: torch.dtype) -> None:
    expected = with_gradients(literal, *inputs)
    found = with_gradients(fast, *(tensor.to(dtype) for tensor in inputs))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        assert_near(ours, theirs)


def test_equation_1_distance(regions: Tensor, prototypes: Tensor, dtype: torch.dtype) -> None:
    def literal(regions: Tensor, prototypes: Tensor) -> Tensor:
        cells = [smallest(image, prototypes, [j]) for image, j in product(regions, range(PROTOTYPES))]
        return torch.stack(cells).reshape(IMAGES, PROTOTYPES)

    assert_same(lambda z, p: nearest_regions(z, p).distances, literal, regions, prototypes, dtype=dtype)


def test_equation_1_region_is_where_the_distance_is_smallest(regions: Tensor, prototypes: Tensor) -> None:
    found = nearest_regions(regions, prototypes).region
    for b, j in product(range(IMAGES), range(PROTOTYPES)):
        row = [squared_distance(region, prototypes[j]).item() for region in regions[b]]
        assert found[b, j].item() == row.index(min(row))


def test_equation_2_score(regions: Tensor, prototypes: Tensor, dtype: torch.dtype) -> None:
    def literal(regions: Tensor, prototypes: Tensor) -> Tensor:
        cells = [score(image, prototypes[j]) for image, j in product(regions, range(PROTOTYPES))]
        return torch.stack(cells).reshape(IMAGES, PROTOTYPES)

    def fast(regions: Tensor, prototypes: Tensor) -> Tensor:
        similarity = LogSimilarity(EPSILON)
        return similarity.scores(nearest_regions(regions, prototypes).distances)

    assert_same(fast, literal, regions, prototypes, dtype=dtype)
    assert torch.equal(layer(prototypes)(regions).scores, fast(regions, prototypes))


def test_equation_2_meets_its_bound_at_distance_zero() -> None:
    regions = torch.full((1, 3, DIMENSION), 7.3)
    scores = layer(regions[0, :1].repeat(PROTOTYPES, 1))(regions).scores
    assert scores[0, 0].item() == pytest.approx(math.log(1e12), rel=1e-6)


def test_equation_3_logits(regions: Tensor, prototypes: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
    def fast(regions: Tensor, prototypes: Tensor, weight: Tensor) -> Tensor:
        scores = LogSimilarity().scores(nearest_regions(regions, prototypes).distances)
        return torch.func.functional_call(Head(torch.tensor(CLASS)), {"weight": weight}, (scores,))

    assert_same(fast, logits, regions, prototypes, weight, dtype=dtype)


def test_equation_3_contributions_sum_to_the_logit(weight: Tensor) -> None:
    scores = random(IMAGES, PROTOTYPES, seed=4)
    head = Head(torch.tensor(CLASS))
    head.weight.data = weight
    parts = head.contributions(scores, torch.tensor(LABELS))
    for b, j in product(range(IMAGES), range(PROTOTYPES)):
        assert parts[b, j].item() == pytest.approx((weight[LABELS[b], j] * scores[b, j]).item(), rel=1e-12)
    torch.testing.assert_close(parts.sum(1), head(scores)[range(IMAGES), LABELS])


def test_equation_4_total(regions: Tensor, prototypes: Tensor, weight: Tensor, dtype: torch.dtype) -> None:
    def fast(regions: Tensor, prototypes: Tensor, weight: Tensor) -> Tensor:
        distances = nearest_regions(regions, prototypes).distances
        out, classes = LogSimilarity().scores(distances) @ weight.T, torch.tensor(CLASS)
        labels = torch.tensor(LABELS)
        return PrototypeLoss()(out, distances, labels, weight=weight, prototype_class=classes).total

    assert_same(fast, total, regions, prototypes, weight, dtype=dtype)


def test_equation_4_pushes_away_from_foreign_prototypes(regions: Tensor, prototypes: Tensor) -> None:
    """The erratum: read literally, minus in Sep and minus in λ2 would pull. A small step must raise -Sep."""
    moved = regions.clone().requires_grad_()
    distances = nearest_regions(moved, prototypes).distances
    loss, classes = PrototypeLoss(cluster=0.0, foreign=0.0), torch.tensor(CLASS)
    nothing = torch.zeros(IMAGES, CLASSES).double()
    terms = loss(nothing, distances, torch.tensor(LABELS), weight=nothing[:, :1], prototype_class=classes)
    (gradient,) = torch.autograd.grad(terms.total, moved)
    assert -sep(regions - 0.1 * gradient, prototypes) > -sep(regions, prototypes) + 1e-6
    assert torch.equal(terms.separation, separation_distance(distances, ownership()))


def ownership() -> Tensor:
    return torch.tensor([[CLASS[j] == label for j in range(PROTOTYPES)] for label in LABELS])


@pytest.mark.parametrize(
    ("fast", "literal", "sign"), [(cluster_loss, clst, 1), (separation_distance, sep, -1)]
)
def test_equations_5_and_6(
    fast: object, literal: object, sign: int, regions: Tensor, prototypes: Tensor, dtype: torch.dtype
) -> None:
    def ours(regions: Tensor, prototypes: Tensor) -> Tensor:
        return sign * fast(nearest_regions(regions, prototypes).distances, ownership())  # type: ignore[operator]

    assert_same(ours, literal, regions, prototypes, dtype=dtype)


def test_equation_7_foreign_weight(weight: Tensor, dtype: torch.dtype) -> None:
    assert_same(lambda w: foreign_weight(w, torch.tensor(CLASS)), sparse, weight, dtype=dtype)


HEIGHT, WIDTH = 3, 4
STYLES = {
    "uniform": uniform_masks(REGIONS, DIMENSION, (HEIGHT, WIDTH), seed=0),
    "spatial": spatial_masks(REGIONS, (HEIGHT, WIDTH), seed=0),
    "array": (torch.arange(REGIONS * DIMENSION * HEIGHT * WIDTH) % 7 / 6).reshape(REGIONS, -1, HEIGHT, WIDTH),
    "shared array": (torch.arange(REGIONS * HEIGHT * WIDTH) % 5 / 4).reshape(REGIONS, 1, HEIGHT, WIDTH),
}


@pytest.mark.parametrize("style", STYLES)
def test_equation_8_masked_average(style: str, dtype: torch.dtype) -> None:
    masks = STYLES[style]

    def literal(feature_map: Tensor) -> Tensor:
        cells = []
        for b, i, d in product(range(IMAGES), range(REGIONS), range(DIMENSION)):
            mask = masks.double()[i, d if masks.shape[1] > 1 else 0]
            spots = product(range(HEIGHT), range(WIDTH))
            cells.append(sum(mask[y, x] * feature_map[b, d, y, x] for y, x in spots) / (HEIGHT * WIDTH))
        return torch.stack(cells).reshape(IMAGES, REGIONS, DIMENSION)

    feature_map = random(IMAGES, DIMENSION, HEIGHT, WIDTH, seed=5)
    assert_same(Masks(masks, dimension=DIMENSION), literal, feature_map, dtype=dtype)


# ── the push ─────────────────────────────────────────────────────────────────────────────────────────

TRAINING, VIEWS = 9, 4
TRAINING_LABELS = [0, 1, 2, 1, 0, 2, 2, 1, 0]


def literal_push(images: Tensor, views: Tensor, prototypes: Tensor) -> tuple[list[int], list[int], Tensor]:
    """Source image, its region, and the mean of the views' nearest regions, prototype by prototype."""
    sources, places, vectors = [], [], []
    for j in range(PROTOTYPES):
        mine = [n for n in range(TRAINING) if TRAINING_LABELS[n] == CLASS[j]]
        pairs = list(product(mine, range(REGIONS)))
        n, e = min(pairs, key=lambda pair: squared_distance(images[pair], prototypes[j]).item())
        chosen = [
            min(view, key=lambda region: squared_distance(region, prototypes[j]).item()) for view in views[n]
        ]
        sources.append(n)
        places.append(e)
        vectors.append(sum(chosen) / VIEWS)
    return sources, places, torch.stack(vectors)


@pytest.mark.parametrize("batch", [1, 2, 4, 9])
def test_equations_9_to_11_multi_image_learning(batch: int, prototypes: Tensor, dtype: torch.dtype) -> None:
    images = random(TRAINING, REGIONS, DIMENSION, seed=6)
    views = random(TRAINING, VIEWS, REGIONS, DIMENSION, seed=7)
    sources, places, vectors = literal_push(images, views, prototypes)

    ours, labels = layer(prototypes.to(dtype)), torch.tensor(TRAINING_LABELS)
    search = SourceSearch(ours)
    for rows in torch.arange(TRAINING).split(batch):
        search.update(images[rows].to(dtype), labels[rows], rows)
    mean = MultiImageMean(ours, search.sources())
    for rows in torch.arange(TRAINING * VIEWS).split(batch):
        mean.update(views.flatten(0, 1)[rows].to(dtype), rows // VIEWS)

    found = search.sources()
    assert (found.index[:, 0].tolist(), found.region[:, 0].tolist()) == (sources, places)
    for j in range(PROTOTYPES):
        literal = squared_distance(images[sources[j], places[j]], prototypes[j]).item()
        assert found.distances[j].item() == pytest.approx(literal, rel=1e-5)
    assert_near(mean.vectors(), vectors)


def test_equation_11_solves_equation_10() -> None:
    """The mean minimises the sum of squares: steps away from it cost more, and the slope there is zero."""
    chosen = random(VIEWS, DIMENSION, seed=8)
    ours, index = layer(random(PROTOTYPES, DIMENSION, seed=2)), torch.zeros(VIEWS, dtype=torch.long)
    search = SourceSearch(ours)
    search.update(chosen[:1].unsqueeze(1), torch.tensor([0]), index[:1])
    mean = MultiImageMean(ours, search.sources())
    mean.update(chosen.unsqueeze(1), index)
    best = mean.vectors()[0].requires_grad_()

    def cost(prototype: Tensor) -> Tensor:
        return torch.stack([squared_distance(vector, prototype) for vector in chosen]).sum()

    assert torch.autograd.grad(cost(best), best)[0].abs().max() < 1e-12
    for step in (*torch.eye(DIMENSION).double(), *-torch.eye(DIMENSION).double()):
        assert cost(best + 1e-3 * step) > cost(best)


def test_cosine_similarity_is_torchs(regions: Tensor, prototypes: Tensor, dtype: torch.dtype) -> None:
    def literal(regions: Tensor, prototypes: Tensor) -> Tensor:
        pairs = torch.nn.functional.cosine_similarity(regions.unsqueeze(2), prototypes, dim=-1)
        return pairs.amax(dim=1)

    def fast(regions: Tensor, prototypes: Tensor) -> Tensor:
        similarity = CosineSimilarity()
        space = similarity.space
        return similarity.scores(nearest_regions(space(regions), space(prototypes)).distances)

    assert_same(fast, literal, regions, prototypes, dtype=dtype)
    assert torch.equal(layer(prototypes, CosineSimilarity())(regions).scores, fast(regions, prototypes))
