"""ProtoPNet once more, as its authors wrote it: convolutions with a filter of ones, max-pooling, loops.

The network is built by the preset, so that these tests are about what `--network protopnet` trains. Features
end with a sigmoid, and only there does the field's `max((max_dist - d) · mask)` equal a minimum.
"""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from tests.conftest import TinyBackbone, rival_config, tiny_views
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, max_pool2d, one_hot, relu

from dprotonet.encoder.encoder import Encoder
from dprotonet.experiment.build.inference import build_similarity
from dprotonet.experiment.build.network import build_regions, build_shaping
from dprotonet.experiment.build.training import build_loss, build_rate_share, build_stages
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.network import DProtoNet
from dprotonet.training.phases import Phase
from dprotonet.training.push import Pusher
from dprotonet.training.start import uniform_vectors

CLASSES, PER_CLASS, SIZE = 3, 2, (4, 4)
SHAPES = {"protopnet": (1, 1), "np-protopnet": (1, 1), "gen-protopnet": (2, 3)}


def rival(name: str) -> DProtoNet:
    """A tiny network with the parts that the preset asks for."""
    torch.manual_seed(0)
    config = rival_config(name, {"network": {"dimension": 5, "patch": list(SHAPES[name])}}).network
    regions = build_regions(config, SIZE)
    prototypes = Prototypes(CLASSES, PER_CLASS, regions.dimension, similarity=build_similarity(config))
    head = Head(prototypes.prototype_class, own=config.head_own, other=config.head_other)
    encoder = Encoder(TinyBackbone(), build_shaping(config, 8, CLASSES * PER_CLASS), regions)
    network = DProtoNet(encoder, prototypes, head).eval()
    network.initialise_prototypes(uniform_vectors(network, seed=0))
    return network


def literal_distances(network: DProtoNet, images: Tensor, patch: tuple[int, int]) -> Tensor:
    """||x||² - 2 x·p + ||p||² of every block, (B, P, h', w'), by three convolutions."""
    x = network.encoder.shaping(network.encoder.backbone(images)).double()
    p = network.prototypes.vectors.detach().double().reshape(-1, x.shape[1], *patch)
    squares = conv2d(x**2, torch.ones_like(p))
    return relu(squares - 2 * conv2d(x, p) + (p**2).sum(dim=(1, 2, 3)).view(-1, 1, 1))


def literal_forward(network: DProtoNet, images: Tensor, patch: tuple[int, int]) -> tuple[Tensor, Tensor]:
    distances = literal_distances(network, images, patch)
    smallest = -max_pool2d(-distances, kernel_size=distances.shape[2:]).flatten(1)
    similarity = torch.log((smallest + 1) / (smallest + 1e-4))
    return similarity @ network.head.weight.detach().double().T, smallest


def images_and_labels(count: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, 32, 32, generator=generator), torch.arange(count) % CLASSES


@pytest.mark.parametrize(("name", "patch"), SHAPES.items())
@torch.no_grad()
def test_forward(name: str, patch: tuple[int, int]) -> None:
    network, (images, _) = rival(name), images_and_labels()
    logits, smallest = literal_forward(network, images, patch)
    found = network.evidence(images)
    torch.testing.assert_close(found.logits.double(), logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.distances.double(), smallest, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "other"), [("protopnet", -0.5), ("np-protopnet", -1.0)])
def test_the_last_layer_begins_with_the_class_identity(name: str, other: float) -> None:
    identity = one_hot(torch.arange(CLASSES).repeat_interleave(PER_CLASS)).float()  # (P, C)
    assert torch.equal(rival(name).head.weight, identity.T + other * (1 - identity).T)


@torch.no_grad()
def test_losses() -> None:
    network, (images, labels) = rival("protopnet"), images_and_labels()
    logits, smallest = literal_forward(network, images, (1, 1))
    identity = one_hot(network.prototype_class).double()  # (P, C)
    own = identity[:, labels].T
    bound = 5.0  # channels × height × width
    cluster = (bound - ((bound - smallest) * own).max(dim=1).values).mean()
    separation = (bound - ((bound - smallest) * (1 - own)).max(dim=1).values).mean()
    sparse = (network.head.weight.double() * (1 - identity.T)).norm(p=1)
    total = cross_entropy(logits, labels) + 0.8 * cluster - 0.08 * separation + 1e-4 * sparse
    evidence = network.evidence(images)
    terms = build_loss(rival_config("protopnet").training)(
        evidence.logits,
        evidence.distances,
        labels,
        weight=network.head.weight,
        prototype_class=network.prototype_class,
    )
    literal = torch.stack([total, cluster, separation, sparse])
    found = torch.stack([terms.total, terms.cluster, terms.separation, terms.foreign]).double()
    torch.testing.assert_close(found, literal, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def literal_push(network: DProtoNet, patch: tuple[int, int]) -> tuple[Tensor, list[int]]:
    """Over all images of a prototype's class the nearest block, kept while nothing nearer comes."""
    views = tiny_views("train")
    vectors, sources = network.prototypes.vectors.clone(), [-1] * CLASSES * PER_CLASS
    smallest = [np.inf] * len(sources)
    for index in range(len(views)):
        view = views[index, 0]
        image = view.inputs.unsqueeze(0)
        distances = literal_distances(network, image, patch)[0]
        features = network.encoder.shaping(network.encoder.backbone(image))[0]
        for number in range(len(sources)):
            if int(network.prototype_class[number]) != view.label:
                continue
            if float(distances[number].min()) < smallest[number]:
                smallest[number], sources[number] = float(distances[number].min()), index
                row, column = np.unravel_index(int(distances[number].argmin()), distances[number].shape)
                block = features[:, row : row + patch[0], column : column + patch[1]]
                vectors[number] = block.flatten()
    return vectors, sources


@pytest.mark.parametrize(("name", "patch"), SHAPES.items())
def test_push(name: str, patch: tuple[int, int]) -> None:
    network, images = rival(name), rival_config(name).training.push_images
    vectors, sources = literal_push(network, patch)
    before = network.prototypes.vectors.detach().clone()
    found = Pusher(Accelerator(cpu=True), images=images)(network, tiny_views("train"))
    assert found.index.tolist() == sources
    torch.testing.assert_close(network.prototypes.vectors.detach(), vectors, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(before, vectors)


def test_rates_over_the_epochs() -> None:
    """StepLR(5, 0.1), stepped before each joint epoch as in the original; warm epochs come first."""
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)
    literal = [1.0] * 5
    for _ in range(15):
        optimizer.step()
        scheduler.step()
        literal.append(optimizer.param_groups[0]["lr"])
    share = build_rate_share(rival_config("protopnet").training)
    assert [share(epoch, 20) for epoch in range(1, 21)] == pytest.approx(literal)


@pytest.mark.parametrize(
    ("name", "learning"),
    [("protopnet", {"last"}), ("np-protopnet", set()), ("dprotonet", {"warm", "joint", "last"})],
)
def test_when_the_last_layer_learns(name: str, learning: set[str]) -> None:
    config = config_from({"recipe": "paper", "network": {"network": name}})
    phases = [stage for stage in build_stages(config) if isinstance(stage, Phase)]
    assert {phase.name for phase in phases if phase.learning_rates.head > 0} == learning
    assert {phase.name for phase in phases} >= {"warm", "joint"}
