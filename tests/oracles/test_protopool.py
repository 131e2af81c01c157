"""ProtoPool by its definitions: focal similarity, slots that choose from a pool, slots that differ."""

import math

import pytest
import torch
from accelerate import Accelerator
from tests.conftest import TinyBackbone, rival_config, tiny_views
from torch import Tensor
from torch.nn.functional import cross_entropy

from dprotonet.encoder.encoder import Encoder
from dprotonet.errors import UserError
from dprotonet.experiment.build.inference import build_head, build_prototypes
from dprotonet.experiment.build.network import build_regions, build_shaping
from dprotonet.experiment.build.training import build_loss
from dprotonet.inference.pool import SlotHead, Slots, sharpness
from dprotonet.inference.prune import pruned
from dprotonet.network import DProtoNet
from dprotonet.training.pool import PoolObjective
from dprotonet.training.push import Pusher

CLASSES, SLOTS, POOL, DIMENSION, SIZE = 3, 2, 8, 5, (4, 4)
LABELS = torch.arange(7) % CLASSES
EPSILON = 1e-4
HELD = [[3, 0], [5, 3], [1, 5]]  # by class; nobody holds 2, 4, 6 and 7


@pytest.fixture
def network() -> DProtoNet:
    torch.manual_seed(0)
    sizes = {"dimension": DIMENSION, "pool": POOL, "prototypes_per_class": SLOTS}
    config = rival_config("protopool", {"network": sizes}).network
    encoder = Encoder(TinyBackbone(), build_shaping(config, 8, POOL), build_regions(config, SIZE, count=POOL))
    prototypes = build_prototypes(config, CLASSES, DIMENSION)
    network = DProtoNet(encoder, prototypes, build_head(config, CLASSES, prototypes)).eval()
    with torch.no_grad():
        prototypes.vectors.uniform_(0, 1)
        for label, row in enumerate(HELD):
            for slot, number in enumerate(row):
                slots(network).logits[label, slot, number] = 2.0
    return network


def slots(network: DProtoNet) -> Slots:
    assert isinstance(network.head, SlotHead)
    return network.head.slots


@pytest.fixture
def images() -> Tensor:
    return torch.randn(7, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def literal(network: DProtoNet, images: Tensor) -> tuple[Tensor, Tensor]:
    """Focal scores g (B, P) and smallest distances (B, P), place by place."""
    features = network.encoder.feature_map(images).double().flatten(2)
    scores = torch.zeros(len(images), POOL, dtype=torch.float64)
    smallest = torch.zeros_like(scores)
    for image in range(len(images)):
        for number in range(POOL):
            vector = network.prototypes.vectors[number].double()
            distances = [float((place - vector).square().sum()) for place in features[image].T]
            similar = [math.log((d + 1) / (d + EPSILON)) for d in distances]
            scores[image, number] = max(similar) - sum(similar) / len(similar)
            smallest[image, number] = min(distances)
    return scores, smallest


@torch.no_grad()
def test_forward(network: DProtoNet, images: Tensor) -> None:
    scores, smallest = literal(network, images)
    evidence = network.evidence(images)
    torch.testing.assert_close(evidence.scores.double(), scores, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(evidence.distances.double(), smallest, rtol=1e-3, atol=1e-5)
    for image in range(len(images)):
        for label, row in enumerate(HELD):
            expected = sum(float(scores[image, number]) for number in row)
            assert evidence.logits[image, label].item() == pytest.approx(expected, rel=1e-3)


@torch.no_grad()
def test_contributions_of_prototypes_add_up_to_the_logit(network: DProtoNet, images: Tensor) -> None:
    assert isinstance(network.head, SlotHead)
    network.head.connection.weight.normal_()
    evidence = network.evidence(images)
    said = network.contributions(evidence, LABELS)
    chosen = evidence.logits.gather(1, LABELS[:, None]).squeeze(1)
    torch.testing.assert_close(said.sum(1), chosen, rtol=1e-4, atol=1e-5)
    expected = torch.zeros(CLASSES, POOL)
    for label, row in enumerate(HELD):
        for slot, number in enumerate(row):
            expected[:, number] += network.head.connection.weight[:, label * SLOTS + slot]
    torch.testing.assert_close(network.head.weight, expected)


def test_losses(network: DProtoNet, images: Tensor) -> None:
    with torch.no_grad():
        scores, smallest = literal(network, images)
        logits = torch.stack([scores[:, row].sum(1) for row in HELD], dim=1)
    near = far = 0.0
    for image, label in enumerate(LABELS.tolist()):
        own = set(HELD[label])
        near += min(float(smallest[image, number]) for number in own) / 7
        far += min(float(smallest[image, number]) for number in range(POOL) if number not in own) / 7
    orthogonal = 0.0
    for label in range(CLASSES):
        one, other = slots(network).logits[label].detach().double()
        orthogonal += 2 * float(one @ other / one.norm() / other.norm()) / (CLASSES * SLOTS)
    loss = build_loss(rival_config("protopool").training)
    terms = PoolObjective(network, loss)(images, LABELS).terms
    assert terms.cluster.item() == pytest.approx(near, rel=1e-3)
    assert terms.separation.item() == pytest.approx(far, rel=1e-3)
    assert terms.foreign.item() == 0  # the head starts with 1 and 0
    entropy = float(cross_entropy(logits, LABELS))
    expected = entropy + 0.8 * near - 0.08 * far + orthogonal
    assert terms.total.item() == pytest.approx(expected, rel=1e-3)


def test_slots_learn_with_prototypes_and_connections_with_the_head(
    network: DProtoNet, images: Tensor
) -> None:
    parts = network.parts()
    learned = {id(item) for item in parts["prototypes"].parameters()}
    assert id(slots(network).logits) in learned
    assert id(network.prototypes.vectors) in learned
    assert [tuple(item.shape) for item in parts["head"].parameters()] == [(CLASSES, CLASSES * SLOTS)]
    parts["prototypes"].train()
    assert slots(network).training
    PoolObjective(network, build_loss(rival_config("protopool").training))(
        images, LABELS
    ).terms.total.backward()
    gradient = slots(network).logits.grad
    assert gradient is not None
    assert gradient.abs().sum(dim=(1, 2)).min() > 0


def test_choices_become_certain() -> None:
    torch.manual_seed(0)
    held = Slots(2, 3, 6).train()
    broad = held()
    torch.testing.assert_close(broad.sum(dim=2), torch.ones(2, 3))
    assert not torch.equal(broad, held())  # drawn anew each time
    with torch.no_grad():
        held.logits[..., 4] += 0.1
    held.sharpness = sharpness(10, 10)
    torch.testing.assert_close(held(), held.choice())
    assert torch.equal(held.eval()(), held.choice())


def test_the_temperature_of_the_paper() -> None:
    """τ = 1/√(α·epoch) up to epoch 30 and 0.001 from then on, α = 3.4e4 (rounded)."""
    for epoch in (1, 7, 29):
        assert 1 / sharpness(epoch, 30) == pytest.approx(1 / math.sqrt(3.4e4 * epoch), rel=0.02)
    assert 1 / sharpness(31, 30) == 1 / sharpness(99, 30) == 0.001


@torch.no_grad()
def test_push_goes_to_images_of_the_classes_that_hold_a_prototype(network: DProtoNet) -> None:
    views = tiny_views("train")
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    _, smallest = literal(network, inputs)
    labels = torch.tensor(views.labels)
    holders = [{label for label, row in enumerate(HELD) if number in row} for number in range(POOL)]
    projection = Pusher(Accelerator(cpu=True), images=1)(network, views)
    for number, classes in enumerate(holders):
        rows = [index for index, label in enumerate(labels.tolist()) if not classes or label in classes]
        expected = min(rows, key=lambda index: float(smallest[index, number]))
        assert int(projection.index[number]) == expected
        named = int(network.prototype_class[number])
        assert named in (classes or {int(labels[expected])})
    source = network.evidence(inputs[projection.index])
    torch.testing.assert_close(source.distances.diagonal(), torch.zeros(POOL), atol=1e-6, rtol=0)


def test_a_pool_is_not_pruned(network: DProtoNet) -> None:
    with pytest.raises(UserError, match="pool cannot be pruned"):
        pruned(network.prototypes, network.head, torch.ones(POOL, dtype=torch.bool))
