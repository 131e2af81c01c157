"""The start of the shaping net, against the literal discriminant rule."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import tiny_config, tiny_network, tiny_views
from torch import Tensor, nn

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Occurrence, Points
from dprotonet.encoder.shaping import Beside, Shaping
from dprotonet.errors import UserError
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import own_region
from dprotonet.inference.similarity import CosineSimilarity, LogSimilarity
from dprotonet.network import DProtoNet
from dprotonet.training.discriminant import (
    ClassMoments,
    drawn_vectors,
    fisher_discriminant,
    k_means,
    parts_of_a_class,
    start_as_discriminant,
)
from dprotonet.training.events import EpochDone
from dprotonet.training.start import starting_vectors

CPU = torch.device("cpu")


def cloud(classes: int = 3, dimension: int = 5, count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    centres = 2 * torch.randn(classes, dimension, generator=generator)
    mixing = torch.randn(dimension, dimension, generator=generator)
    return centres[labels] + torch.randn(count, dimension, generator=generator) @ mixing, labels


def moments_of(vectors: Tensor, labels: Tensor, batch: int = 7) -> ClassMoments:
    moments = ClassMoments(int(labels.max()) + 1, vectors.shape[1])
    for part, names in zip(vectors.split(batch), labels.split(batch), strict=True):
        moments.update(part, names)
    return moments


def literal_moments(vectors: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Class means and the covariance about them, in loops over the vectors."""
    rows, names = vectors.double(), labels.tolist()
    classes = sorted(set(names))
    members = [[row for row, name in zip(rows, names, strict=True) if name == label] for label in classes]
    means = torch.stack([sum(own, torch.zeros_like(rows[0])) / len(own) for own in members])
    within = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
    for row, name in zip(rows, names, strict=True):
        within += torch.outer(row - means[name], row - means[name]) / len(rows)
    return means, within


def test_moments_are_those_of_the_loop() -> None:
    vectors, labels = cloud()
    moments, (means, within) = moments_of(vectors, labels), literal_moments(vectors, labels)
    torch.testing.assert_close(moments.means(), means)
    torch.testing.assert_close(moments.within(), within)


@pytest.mark.parametrize("shrinkage", [0.1, 0.5, 1.0])
def test_distances_to_class_means_differ_as_mahalanobis_distances_do(shrinkage: float) -> None:
    """With all directions the nearest mean after projection is the answer of the discriminant rule."""
    vectors, labels = cloud()
    means, within = literal_moments(vectors, labels)
    shrunk = (1 - shrinkage) * within + shrinkage * within.diagonal().mean() * torch.eye(5)
    centre, directions = fisher_discriminant(moments_of(vectors, labels), count=9, shrinkage=shrinkage)
    for row in vectors.double():
        literal = torch.stack([(row - mean) @ torch.linalg.inv(shrunk) @ (row - mean) for mean in means])
        short = (directions.double() @ (row - means).T).square().sum(0)
        torch.testing.assert_close(short - short[0], literal - literal[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(centre.double(), means.mean(0), rtol=1e-5, atol=1e-5)


def test_fewer_directions_are_the_best_ones() -> None:
    moments = moments_of(*cloud(classes=4))
    every = fisher_discriminant(moments, count=9).directions
    assert len(every) == 3
    torch.testing.assert_close(fisher_discriminant(moments, count=2).directions, every[:2])
    spread = (every.double() @ (moments.means() - moments.means().mean(0)).T).square().sum(1)
    assert spread.tolist() == sorted(spread.tolist(), reverse=True)


def test_features_that_never_vary_are_no_obstacle() -> None:
    moments = moments_of(torch.ones(6, 4), torch.arange(6) % 2)
    assert fisher_discriminant(moments, count=2).directions.isfinite().all()


def linear_shaping() -> tuple[Shaping, Tensor, Tensor]:
    torch.manual_seed(0)
    shaping, centre, directions = Shaping(5, 8), torch.randn(5), torch.randn(3, 5)
    shaping.start_linear(centre, directions, seed=0)
    return shaping, centre, directions


@torch.no_grad()
def test_a_part_without_images_counts_for_nothing() -> None:
    vectors, labels = cloud()
    full, lacking = moments_of(vectors + 10, labels), ClassMoments(5, 5)
    lacking.update(vectors + 10, labels)
    wanted, found = (fisher_discriminant(moments, count=4) for moments in (full, lacking))
    torch.testing.assert_close(found.centre, wanted.centre)
    torch.testing.assert_close(found.directions, wanted.directions)


def test_images_that_repeat_are_no_obstacle() -> None:
    """Their covariance is rounding, and not positive."""
    vectors = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).repeat(101, 1) + 10
    found = fisher_discriminant(moments_of(vectors, torch.arange(303) % 3), count=2)
    assert found.directions.isfinite().all()
    assert found.directions.shape == (2, 6)


def test_a_linear_start_keeps_the_lengths_of_the_projection() -> None:
    shaping, centre, directions = linear_shaping()
    points = torch.randn(6, 5)
    shaped = shaping(points[:, :, None, None]).flatten(1)
    projected = (points - centre) @ directions.T
    torch.testing.assert_close(shaped @ shaped.T, projected @ projected.T, rtol=1e-4, atol=1e-4)


def test_unheard_channels_can_still_learn() -> None:
    shaping, _, _ = linear_shaping()
    shaping(torch.randn(6, 5, 1, 1)).square().sum().backward()
    assert (shaping[2].weight.grad[:, 6:].abs().amax() > 0).item()


@torch.no_grad()
def test_scaling_scales_the_output() -> None:
    torch.manual_seed(0)
    shaping, points = Shaping(5, 8), torch.randn(6, 5, 2, 2)
    shaping[2].bias.normal_()
    before = shaping(points)
    shaping.scale(0.3)
    torch.testing.assert_close(shaping(points), 0.3 * before)


def distances(network: DProtoNet) -> tuple[Tensor, Tensor]:
    """Of the plain training images to all prototypes, and which of these are of the image's class."""
    views = tiny_views()
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    own = torch.tensor(views.labels).unsqueeze(1) == network.prototype_class
    return network.eval().evidence(inputs).distances, own


@torch.no_grad()
def test_training_starts_where_similarity_is_steep() -> None:
    network, views = tiny_network(), tiny_views()
    start_as_discriminant(network, views, seed=3, batch=4, device=CPU)
    assert network.training
    network.initialise_prototypes(starting_vectors(network, views, seed=3, device=CPU))
    found, own = distances(network)
    assert found[own].median().item() == pytest.approx(1.0, rel=1e-3)
    assert found[~own].median() > 2 * found[own].median()


def points_behind_a_sigmoid(dimension: int) -> DProtoNet:
    torch.manual_seed(0)
    prototypes = Prototypes(3, 2, dimension, similarity=LogSimilarity(1e-4))
    shaping = Shaping(8, dimension, ending=[nn.Sigmoid()])
    encoder = Encoder(tiny_network().encoder.backbone, shaping, Points(dimension, (4, 4)))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class))


@torch.no_grad()
@pytest.mark.parametrize("dimension", [4, 128])
def test_a_sigmoid_starts_in_its_straight_middle(dimension: int) -> None:
    """There it is 1/2 + v/4 of the projection v, so that it keeps what the discriminant tells apart."""
    network, views = points_behind_a_sigmoid(dimension), tiny_views()
    start_as_discriminant(network, views, seed=3, device=CPU)
    network.initialise_prototypes(drawn_vectors(network, views, seed=3, device=CPU))
    found, own = distances(network)
    assert found[own].median().item() <= 1.01
    assert found[~own].median() > 2 * found[own].median()
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    first, between, second, _ = network.encoder.shaping
    projected = second(between(first(network.encoder.backbone(inputs))))
    shaped = network.encoder.shaping(network.encoder.backbone(inputs))
    assert (shaped - (0.5 + projected / 4)).abs().mean() < 0.1 * (shaped - 0.5).abs().mean()
    assert 0.1 < network.prototypes.vectors.logit().square().mean().sqrt() < 1.01


@torch.no_grad()
def test_prototypes_of_places_start_where_the_class_is_told() -> None:
    """Literally, in float64 loops: of every drawn image the place with the largest (z - m)·(m_c - m)."""
    network, views = points_behind_a_sigmoid(128), tiny_views()
    start_as_discriminant(network, views, seed=3, device=CPU)
    found = drawn_vectors(network, views, seed=3, batch=4, device=CPU).double()
    labels = views.labels
    images = [network.eval().encoder(views[i, 0].inputs[None])[0].double() for i in range(len(views))]
    means = []
    for label in range(3):
        places = [place for image, own in zip(images, labels, strict=True) if own == label for place in image]
        means.append(sum(places) / len(places))
    centre = sum(means) / 3
    told = []
    for image, own in zip(images, labels, strict=True):
        scores = [float((place - centre) @ (means[own] - centre)) for place in image]
        told.append(image[scores.index(max(scores))])
    for vector, owner in zip(found, network.prototype_class.tolist(), strict=True):
        gaps = [(vector - place).abs().max() for place, own in zip(told, labels, strict=True) if own == owner]
        assert min(gaps) < 1e-5


def with_occurrence(classes: int = 3, per_class: int = 2) -> DProtoNet:
    torch.manual_seed(0)
    count = classes * per_class
    prototypes = Prototypes(classes, per_class, 6, similarity=CosineSimilarity(), assignment=own_region)
    shaping = Beside(Shaping(8, 6), Shaping(8, count))
    encoder = Encoder(tiny_network().encoder.backbone, shaping, Occurrence(6, count, (4, 4)))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class))


@torch.no_grad()
def test_beside_occurrence_maps_only_the_features_start_so() -> None:
    network, views = with_occurrence(), tiny_views()
    shaping = network.encoder.shaping
    assert isinstance(shaping, Beside)
    before = [parameter.clone() for parameter in shaping.occurrence.parameters()]
    start_as_discriminant(network, views, seed=3, device=CPU)
    for then, now in zip(before, shaping.occurrence.parameters(), strict=True):
        assert torch.equal(then, now)
    network.initialise_prototypes(starting_vectors(network, views, seed=3, device=CPU))
    found, own = distances(network)
    assert found[~own].median() > 1.4 * found[own].median()


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        ([150, 100], 5),
        ([99, 45], 2),
        ([19, 90], 1),
        ([80] * 3, 4),
        ([40] * 9, 2),
        ([99] * 10, 1),
        ([5] * 50, 1),
    ],
)
def test_few_classes_are_divided_into_parts(counts: list[int], parts: int) -> None:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    assert parts_of_a_class(labels) == parts


def test_k_means_finds_planted_groups() -> None:
    generator = torch.Generator().manual_seed(0)
    middles = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    vectors = (middles.repeat(20, 1) + torch.randn(60, 2, generator=generator) * 0.1)[
        torch.randperm(60, generator=generator)
    ]
    found = k_means(vectors, 3)
    assert torch.cdist(found, middles).amin(0).max() < 0.2
    torch.testing.assert_close(k_means(vectors[:1].repeat(4, 1), 2), vectors[:1].repeat(2, 1))


@torch.no_grad()
def test_two_classes_start_with_more_than_one_direction() -> None:
    network, views = tiny_network(classes=2), tiny_views("train", augment=False, classes=2, per_class=40)
    start_as_discriminant(network, views, seed=0, device=CPU)
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    regions = network.eval().encoder(inputs)[:, 0]
    strengths = torch.linalg.svdvals(regions - regions.mean(0))
    assert strengths[1] > 0.05 * strengths[0]


@pytest.mark.parametrize("per_class", [1, 2, 3])
def test_few_images_do_not_blow_up_the_scale(per_class: int) -> None:
    """A prototype lies on the image that it started from; those distances of 0 must not set the scale."""
    network, views = tiny_network(), tiny_views("train", augment=False, per_class=per_class)
    start_as_discriminant(network, views, seed=0, device=torch.device("cpu"))
    network.initialise_prototypes(starting_vectors(network, views, seed=0, device=torch.device("cpu")))
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    found = network.eval().evidence(inputs).distances
    foreign = found[torch.tensor(views.labels).unsqueeze(1) != network.prototype_class]
    assert foreign.median() < 1e4


def test_the_same_seed_is_the_same_start() -> None:
    networks = [tiny_network(), tiny_network()]
    for network, batch in zip(networks, (4, 15), strict=True):
        torch.manual_seed(batch)  # what was drawn before, for cached features or not, must not matter
        start_as_discriminant(network, tiny_views(), seed=3, batch=batch, device=CPU)
    for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"dimension": 1}, "dimension 1"),
        ({"dimension": 1, "activation": "sigmoid", "regions": "points"}, "dimension 1"),
    ],
)
def test_where_no_discriminant_can_be_the_user_is_told(setting: dict, words: str) -> None:
    config = tiny_config(shaping_start="discriminant")
    config = replace(config, network=replace(config.network, **setting))
    with pytest.raises(UserError, match=f"{words}.*--shaping-start random"):
        check_config(final_config(config))
    random = replace(config, training=replace(config.training, shaping_start="random"))
    check_config(final_config(random))


@pytest.mark.parametrize("mode", ["joint", "frozen"])
def test_a_run_starts_as_it_is_told(tmp_path: Path, mode: str) -> None:
    first = {}
    for start in ("random", "discriminant"):
        config = tiny_config(mode=mode, epochs=2, shaping_start=start)
        events = Trainer(config, tmp_path / start, cache=tmp_path / "cache").run()
        first[start] = next(event for event in events if isinstance(event, EpochDone)).terms["cluster"]
    assert 0.1 < first["discriminant"] < 10  # begins at a median of 1, whatever the scale of the features
    assert first["random"] < 0.1  # those of this backbone are small
