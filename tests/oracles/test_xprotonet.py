"""XProtoNet by its definitions: f_p = Σ M_p F, cosine with its own prototype only, losses of the cosine."""

import pytest
import torch
from accelerate import Accelerator
from tests.conftest import TinyBackbone, rival_config, tiny_views
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Occurrence
from dprotonet.encoder.shaping import Beside
from dprotonet.experiment.build.inference import build_similarity
from dprotonet.experiment.build.network import build_regions, build_shaping
from dprotonet.experiment.build.training import build_loss
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import own_region
from dprotonet.interpretation.nodes import ClassNode, PrototypeNode
from dprotonet.interpretation.occurrence import OccurrenceMaps
from dprotonet.network import DProtoNet
from dprotonet.ops import unit_range
from dprotonet.training.occurrence import OccurrenceObjective, moved, random_affine
from dprotonet.training.push import Pusher

CLASSES, PER_CLASS, DIMENSION, SIZE = 3, 2, 5, (4, 4)
COUNT = CLASSES * PER_CLASS


@pytest.fixture
def network() -> DProtoNet:
    torch.manual_seed(0)
    config = rival_config("xprotonet", {"network": {"dimension": DIMENSION}}).network
    regions = build_regions(config, SIZE, count=COUNT)
    similarity = build_similarity(config)
    prototypes = Prototypes(CLASSES, PER_CLASS, DIMENSION, similarity=similarity, assignment=own_region)
    encoder = Encoder(TinyBackbone(), build_shaping(config, 8, COUNT), regions)
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(7, 3, 32, 32, generator=torch.Generator().manual_seed(1))


LABELS = torch.arange(7) % CLASSES


def literal_maps(network: DProtoNet, images: Tensor) -> tuple[Tensor, Tensor]:
    """M (B, P, h, w) and f (B, P, D), place by place."""
    shaping = network.encoder.shaping
    assert isinstance(shaping, Beside)
    below = network.encoder.backbone(images)
    features, occurrence = shaping.features(below).double(), shaping.occurrence(below).double().sigmoid()
    found = torch.zeros(len(images), COUNT, DIMENSION, dtype=torch.float64)
    for row in range(SIZE[0]):
        for column in range(SIZE[1]):
            found += occurrence[:, :, row, column].unsqueeze(2) * features[:, :, row, column].unsqueeze(1)
    return occurrence, found


@torch.no_grad()
def test_forward(network: DProtoNet, images: Tensor) -> None:
    _, found = literal_maps(network, images)
    scores = cosine_similarity(found, network.prototypes.vectors.double(), dim=2)
    evidence = network.evidence(images)
    torch.testing.assert_close(evidence.scores.double(), scores, rtol=1e-4, atol=1e-5)
    logits = scores @ network.head.weight.double().T
    torch.testing.assert_close(evidence.logits.double(), logits, rtol=1e-4, atol=1e-5)
    assert evidence.region.tolist() == [list(range(COUNT))] * len(images)


@torch.no_grad()
def test_losses_weigh_the_cosine_by_a_half(network: DProtoNet, images: Tensor) -> None:
    evidence = network.evidence(images)
    own = LABELS.unsqueeze(1) == network.prototype_class
    cluster = -evidence.scores.masked_fill(~own, -torch.inf).amax(1).mean()
    separation = evidence.scores.masked_fill(own, -torch.inf).amax(1).mean()
    literal = cross_entropy(evidence.logits, LABELS) + 0.5 * cluster + 0.5 * separation
    loss = build_loss(rival_config("xprotonet").training)
    terms = loss(
        evidence.logits,
        evidence.distances,
        LABELS,
        weight=network.head.weight,
        prototype_class=network.prototype_class,
    )
    # 2 - 2 cos in place of the cosine adds the same constant to both, with opposite signs.
    torch.testing.assert_close(terms.total - loss.foreign * terms.foreign, literal)


def test_the_occurrence_loss_is_added(network: DProtoNet, images: Tensor) -> None:
    loss = build_loss(rival_config("xprotonet").training)
    torch.manual_seed(3)
    affine = random_affine(len(images), images.device)
    with torch.no_grad():
        maps, _ = literal_maps(network, images)
        again, _ = literal_maps(network, moved(images, affine))
    extra = (moved(maps, affine) - again).abs().mean() + maps.mean()
    torch.manual_seed(3)
    terms = OccurrenceObjective(network, loss, weight=0.5)(images, LABELS).terms
    plain = OccurrenceObjective(network, loss, weight=0.0)(images, LABELS).terms
    assert (terms.total - plain.total).item() == pytest.approx(0.5 * float(extra), rel=1e-4)
    terms.total.backward()
    shaping = network.encoder.shaping
    assert isinstance(shaping, Beside)
    assert all(item.grad is not None and item.grad.any() for item in shaping.occurrence.parameters())


def test_moving_is_moving() -> None:
    dot = torch.zeros(1, 1, 9, 9)
    dot[..., 4, 4] = 1
    one_column = torch.tensor([[[1.0, 0, 2 / 9], [0, 1, 0]]])
    torch.testing.assert_close(moved(dot, torch.eye(2, 3).unsqueeze(0)), dot)
    torch.testing.assert_close(moved(dot, one_column), dot.roll(-1, dims=3))


@torch.no_grad()
def test_push_takes_the_nearest_of_its_own_map(network: DProtoNet) -> None:
    views = tiny_views("train")
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    _, found = literal_maps(network, inputs)
    closeness = cosine_similarity(found, network.prototypes.vectors.double(), dim=2)
    own = torch.tensor(views.labels).unsqueeze(1) == network.prototype_class
    source = closeness.masked_fill(~own, -torch.inf).argmax(0)
    projection = Pusher(Accelerator(cpu=True), images=1)(network, views)
    assert projection.index.tolist() == source.tolist()
    assert projection.region.tolist() == list(range(COUNT))
    literal = found[source, torch.arange(COUNT)]
    torch.testing.assert_close(network.prototypes.vectors.double(), literal, rtol=1e-4, atol=1e-5)
    scores = network.evidence(inputs[source]).scores.diagonal()
    torch.testing.assert_close(scores, torch.ones(COUNT))


@torch.no_grad()
def test_its_own_explanation_is_the_enlarged_map(network: DProtoNet, images: Tensor) -> None:
    regions = network.encoder.regions
    assert isinstance(regions, Occurrence)

    def occurring(block: Tensor) -> tuple[Tensor, Tensor]:
        return regions.maps(network.encoder.feature_map(block)), network.evidence(block).scores

    weight = network.head.weight
    explainer = OccurrenceMaps(network, occurring=occurring, weight=weight, internal_batch_size=3)
    maps, _ = literal_maps(network, images)
    scores = network.evidence(images).scores.clamp_min(0).double()
    large = torch.nn.functional.interpolate(maps, size=(32, 32), mode="bilinear", align_corners=False)
    node = PrototypeNode(network.encoder, lambda z, p: z @ p.T, network.prototypes.vectors, [4] * 7)
    for row, found in enumerate(explainer.explain(images, node)):
        torch.testing.assert_close(found.raw.double(), scores[row, 4] * large[row, 4], rtol=1e-4, atol=1e-5)
    numbers = [4, 0, 2, 1, 5, 3, 4]
    chosen = unit_range(torch.stack([large[row, number] for row, number in enumerate(numbers)]))
    torch.testing.assert_close(
        explainer.of_prototypes(images[:3], numbers[:3]).double(), chosen[:3], rtol=1e-4, atol=1e-5
    )
    of_one = unit_range(large[0, numbers])
    torch.testing.assert_close(
        explainer.of_prototypes(images[:1], numbers).double(), of_one, rtol=1e-4, atol=1e-5
    )
    said = scores * weight[LABELS].clamp_min(0).double()
    literal = (said[:, :, None, None] * large).sum(1)
    for row, found in enumerate(explainer.explain(images, ClassNode(network, LABELS, probability=False))):
        torch.testing.assert_close(found.raw.double(), literal[row], rtol=1e-4, atol=1e-5)
    assert len(explainer.explain(images)) == len(images)


def test_regions_that_are_not_one_each_are_refused() -> None:
    with pytest.raises(ValueError, match="one for each"):
        own_region(torch.zeros(2, 4, 3), torch.zeros(5, 3))


def test_wanted_prototypes_are_columns_of_all() -> None:
    generator = torch.Generator().manual_seed(0)
    regions, vectors = (torch.randn(size, generator=generator) for size in ((3, 5, 4), (5, 4)))
    wanted = torch.tensor([4, 1])
    some, every = own_region(regions, vectors, wanted), own_region(regions, vectors)
    assert torch.equal(some.distances, every.distances[:, wanted])
    assert torch.equal(some.region, every.region[:, wanted])
